#include "firstfault/guard/snapshot_schedule.h"

#include <algorithm>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "firstfault/guard/limits.h"

namespace firstfault::guard {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

/// Steps of what is left after a snapshot of one byte in each.
std::vector<std::int64_t> kept_after(std::int64_t steps, std::int64_t most_bytes) {
  std::vector<HeldSnapshot> held;
  for (std::int64_t step = 0; step < steps; ++step) {
    held.push_back({step, 1});
    while (const auto drop = snapshot_to_drop(held, step, most_bytes)) {
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(*drop));
    }
  }
  std::vector<std::int64_t> kept;
  for (const HeldSnapshot& one : held) kept.push_back(one.step);
  return kept;
}

TEST(SnapshotSchedule, TheNewestAndTheOldestStay) {
  const auto kept = kept_after(1000, 6);
  EXPECT_EQ(kept.size(), 6u);
  EXPECT_EQ(kept.back(), 999);
  EXPECT_EQ(kept.front(), 0);
}

TEST(SnapshotSchedule, AgesGrowGeometrically) {
  const auto kept = kept_after(10'000, 10);
  for (std::size_t i = 0; i + 2 < kept.size(); ++i) {
    const auto older = static_cast<double>(10'000 - kept[i]), newer = static_cast<double>(10'000 - kept[i + 2]);
    EXPECT_LT(older / newer, 40) << "a gap before step " << kept[i + 2];
  }
  const auto middle = std::count_if(kept.begin(), kept.end(), [](auto step) { return step > 100 && step < 9990; });
  EXPECT_GE(middle, 4);
}

TEST(SnapshotSchedule, TheirNumberIsCappedWhateverTheyTake) {
  EXPECT_EQ(kept_after(1000, kNoLimit).size(), kMostSnapshots);
}

TEST(SnapshotSchedule, NoneGoesThatFits) {
  const HeldSnapshot held[] = {{3, 10}, {9, 10}};
  EXPECT_FALSE(snapshot_to_drop(held, 9, 20));
  EXPECT_FALSE(snapshot_to_drop({}, 9, 0));
}

TEST(SnapshotSchedule, OfTwoTheOlderGoesAndOneAloneThatIsTooLarge) {
  const HeldSnapshot held[] = {{3, 10}, {9, 10}};
  EXPECT_EQ(snapshot_to_drop(held, 9, 19), 0u);
  EXPECT_EQ(snapshot_to_drop(std::span(held).first(1), 9, 9), 0u);
}

}  // namespace
}  // namespace firstfault::guard
