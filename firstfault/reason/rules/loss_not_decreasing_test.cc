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
  EXPECT_FALSE(ask("loss_not_decreasing", crawling(flat(50))));
}

}  // namespace
}  // namespace firstfault::reason
