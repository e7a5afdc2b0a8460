#include "firstfault/guard/snapshot_schedule.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

namespace firstfault::guard {
namespace {

std::vector<std::int64_t> kept_after(std::int64_t steps, std::size_t places) {
  std::vector<std::int64_t> kept;
  for (std::int64_t step = 0; step < steps; ++step) {
    kept.push_back(step);
    if (kept.size() > places) {
      kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(snapshot_to_drop(kept, step)));
    }
  }
  return kept;
}

TEST(SnapshotSchedule, TheNewestAndTheOldestStay) {
  const auto kept = kept_after(1000, 6);
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

TEST(SnapshotSchedule, OfTwoTheOlderGoes) {
  const std::int64_t steps[] = {3, 9};
  EXPECT_EQ(snapshot_to_drop(steps, 9), 0u);
}

}  // namespace
}  // namespace firstfault::guard
