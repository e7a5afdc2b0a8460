// The rule optimizer_state.
#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

Run resumed(double loss_after, double update_after) {
  auto run = learning(100);
  for (StepRow& row : run.rows) {
    row.reset_state = row.step == 60;
    if (row.step >= 60 && row.step < 75) row.update_ratio = update_after * wobble(row.step);
    if (row.step >= 61 && row.step < 75) row.loss = loss_after * wobble(row.step);
  }
  return run;
}

TEST(OptimizerState, NamesTheStepInWhichTheStateWasLost) {
  const auto answer = ask("optimizer_state", resumed(5, 0.05));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->step, 60);
  EXPECT_EQ(answer->onset_step, 60);
}

TEST(OptimizerState, IsSilentWhereNothingCameOfIt) { EXPECT_FALSE(ask("optimizer_state", resumed(0.1, 1e-3))); }

TEST(OptimizerState, SpeaksForAnEpsOfZero) {
  auto run = learning(5);
  add_fault(run, 0, "optimizer_denominator", "optimizer_state").phase = Phase::optimizer;
  EXPECT_TRUE(ask("optimizer_state", run));
}

TEST(OptimizerState, SeesAnUpdateThatLeapsWhileGradientAndRateDoNot) {
  Run run = resumed(5, 1e-3);
  for (StepRow& row : run.rows) row.reset_state = false;
  run.rows[60].update_ratio = 3;
  const auto answers = hypotheses(run);
  ASSERT_FALSE(answers.empty());
  EXPECT_EQ(answers.front().cause, "optimizer_state");
  run.rows[60].lr *= 1000;
  EXPECT_EQ(hypotheses(run).front().cause, "lr_too_high");
}

TEST(OptimizerState, SpeaksForAnEpsOfZeroWhateverTheOp) {
  Run run = learning(5);
  run.setup.optimizers.push_back({"AdamW", {{{"lr", 1e-3}, {"eps", 0}}}});
  Origin& origin = add_fault(run, 0, "", "");
  origin.phase = Phase::optimizer;
  origin.op = "aten::_fused_adamw_";
  EXPECT_EQ(hypotheses(run).front().cause, "optimizer_state");
}

}  // namespace
}  // namespace firstfault::reason
