#include "firstfault/record/retention.h"

#include <cstdint>
#include <map>

#include <gtest/gtest.h>

namespace firstfault::record {
namespace {

/// Does what Retention says: step -> has its sites.
class Kept {
 public:
  explicit Kept(const RetentionOptions& options = {}) : retention_(options) {}
  void row(std::int64_t step, std::int64_t values = 10) {
    rows_[step] = true;
    Retention::Lost lost;
    retention_.add_row(step, values, lost);
    for (const std::int64_t one : lost.sites) rows_.at(one) = false;
    for (const std::int64_t one : lost.rows) EXPECT_EQ(rows_.erase(one), 1u) << one;
    EXPECT_EQ(retention_.rows(), static_cast<std::int64_t>(rows_.size()));
  }
  void transition(std::int64_t step) { retention_.add_transition(step); }
  bool has_row(std::int64_t step) const { return rows_.contains(step); }
  bool has_sites(std::int64_t step) const { return has_row(step) && rows_.at(step); }
  std::int64_t rows() const { return static_cast<std::int64_t>(rows_.size()); }
  std::int64_t with_sites() const {
    std::int64_t count = 0;
    for (const auto& [step, sites] : rows_) count += sites ? 1 : 0;
    return count;
  }

 private:
  Retention retention_;
  std::map<std::int64_t, bool> rows_;
};

TEST(Retention, KeepsTheSitesOfTheFirstAndTheNewestSteps) {
  Kept kept;
  for (std::int64_t step = 0; step < 5000; ++step) kept.row(step);
  EXPECT_TRUE(kept.has_sites(0) && kept.has_sites(63));
  EXPECT_FALSE(kept.has_sites(64));
  EXPECT_TRUE(kept.has_row(64));
  EXPECT_FALSE(kept.has_sites(5000 - 513));
  EXPECT_TRUE(kept.has_sites(5000 - 512) && kept.has_sites(4999));
  EXPECT_EQ(kept.rows(), 5000);
  EXPECT_EQ(kept.with_sites(), 64 + 512);
}

TEST(Retention, ThinsOldRowsByPowersOfTwo) {
  Kept kept;
  for (std::int64_t step = 0; step < 20'000; ++step) kept.row(step);
  EXPECT_LE(kept.rows(), 8192);
  EXPECT_GE(kept.rows(), 4096);
  for (std::int64_t step = 64; step < 20'000 - 512; ++step) EXPECT_EQ(kept.has_row(step), step % 4 == 0) << step;
}

TEST(Retention, KeepsSixteenStepsAroundATransitionWithTheirSites) {
  for (const bool row_first : {true, false}) {
    Kept kept;
    for (std::int64_t step = 0; step < 30'001; ++step) {
      if (step == 2001 && !row_first) kept.transition(step);
      kept.row(step);
      if (step == 2001 && row_first) kept.transition(step);
    }
    EXPECT_FALSE(kept.has_sites(2001 - 17));
    for (std::int64_t step = 2001 - 16; step <= 2001 + 16; ++step) EXPECT_TRUE(kept.has_sites(step)) << step;
    EXPECT_FALSE(kept.has_sites(2001 + 17));
  }
}

TEST(Retention, KeepsTheRowsOfLaterTransitionsWithoutTheirSites) {
  Kept kept;
  for (std::int64_t step = 0; step < 100'000; ++step) {
    kept.row(step);
    if (step % 101 == 50) kept.transition(step);
  }
  const std::int64_t early = 50 + 31 * 101;  // the 32nd
  const std::int64_t late = 50 + 32 * 101;
  EXPECT_TRUE(kept.has_sites(early - 16) && kept.has_sites(early));
  EXPECT_TRUE(kept.has_row(late));
  EXPECT_FALSE(kept.has_sites(late));
  EXPECT_TRUE(kept.has_row(50 + 800 * 101));
}

TEST(Retention, StaysBoundedOverAMillionStepsWithATransitionInEachThird) {
  Kept kept;
  std::int64_t most = 0;
  for (std::int64_t step = 0; step < 1'000'000; ++step) {
    kept.row(step);
    if (step % 3 == 0) kept.transition(step);
    most = std::max(most, kept.rows());
  }
  EXPECT_LE(most, 8192);
  EXPECT_LE(kept.with_sites(), 64 + 512 + 32 * 33);
}

TEST(Retention, HoldsNoMoreHealthValuesThanItMay) {
  RetentionOptions options;
  options.health_values = 40'000;
  Kept kept(options);
  for (std::int64_t step = 0; step < 3000; ++step) {
    kept.row(step, 1000);
    if (step % 100 == 99) kept.transition(step);
    EXPECT_LE(kept.with_sites(), 40) << step;
  }
  EXPECT_TRUE(kept.has_sites(0) && kept.has_sites(9));
  EXPECT_FALSE(kept.has_sites(10));
  EXPECT_TRUE(kept.has_sites(2999) && kept.has_sites(2980));
  EXPECT_TRUE(kept.has_sites(99));
}

TEST(Retention, AlwaysKeepsTheSitesOfTheNewestStep) {
  RetentionOptions options;
  options.health_values = 100;
  Kept kept(options);
  for (std::int64_t step = 0; step < 300; ++step) {
    kept.row(step, 1000);
    EXPECT_TRUE(kept.has_sites(step));
    EXPECT_EQ(kept.with_sites(), 1);
  }
}

}  // namespace
}  // namespace firstfault::record
