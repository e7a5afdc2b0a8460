// The rule loss_not_decreasing.
#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

Run crawling(Run run) {
  for (StepRow& row : run.rows) row.update_ratio = 1e-8;
  return run;
}

TEST(LossNotDecreasing, SpeaksWhereTheStepsAreTooSmallToShow) {
  EXPECT_TRUE(ask("loss_not_decreasing", crawling(flat(300))));
}

TEST(LossNotDecreasing, IsSilentAboutNoiseAndAboutShortRuns) {
  EXPECT_FALSE(ask("loss_not_decreasing", flat(300)));
  EXPECT_FALSE(ask("loss_not_decreasing", crawling(flat(10))));
}

TEST(LossNotDecreasing, IsSilentWhileAWarmUpHasOnlyBegun) {
  Run run = crawling(flat(60));
  for (StepRow& row : run.rows) row.lr = 1e-6 * static_cast<double>(row.step + 1);
  EXPECT_FALSE(ask("loss_not_decreasing", run));
}

}  // namespace
}  // namespace firstfault::reason
