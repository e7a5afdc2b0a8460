// The rule loss_scale_collapse.
#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

Run skipping(std::int64_t from, std::int64_t count, double factor) {
  auto run = flat(60);
  double scale = 65536;
  for (StepRow& row : run.rows) {
    row.skipped = row.step >= from && row.step < from + count;
    row.loss_scale = scale;
    if (row.skipped) scale *= factor;
  }
  return run;
}

TEST(LossScaleCollapse, SeesAScaleThatFellThroughTheFloor) {
  const auto answer = ask("loss_scale_collapse", skipping(20, 40, 0.5));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->step, 20);
}

TEST(LossScaleCollapse, SeesAScaleThatHardlyBacksOff) {
  EXPECT_EQ(hypotheses(skipping(0, 60, 0.97)).front().cause, "loss_scale_collapse");
}

TEST(LossScaleCollapse, IsSilentWhileAScalerFindsItsScale) { EXPECT_TRUE(hypotheses(skipping(0, 12, 0.5)).empty()); }

TEST(LossScaleCollapse, IsAnEffectOfALossThatIsNaN) {
  Run run = skipping(20, 40, 0.5);
  add_fault(run, 20, "log_of_nonpositive", "op_domain");
  EXPECT_EQ(hypotheses(run).front().cause, "op_domain");
}

}  // namespace
}  // namespace firstfault::reason
