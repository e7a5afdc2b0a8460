// The rule missing_zero_grad.
#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

Run never_cleared(Run run) {
  for (StepRow& row : run.rows) row.gradients_left_over = row.step > 0;
  return run;
}

TEST(MissingZeroGrad, IsTheCauseOfADivergenceBeforeTheLearningRate) {
  const auto run = never_cleared(diverging(30, 8, 30));
  const auto answers = hypotheses(run);
  ASSERT_FALSE(answers.empty());
  EXPECT_EQ(answers.front().cause, "missing_zero_grad");
  EXPECT_EQ(answers.front().onset_step, 1);
  EXPECT_EQ(answers.front().step, 38);
}

TEST(MissingZeroGrad, IsAFaultOfTheProgramBeforeTheRunSuffers) {
  EXPECT_TRUE(ask("missing_zero_grad", never_cleared(learning(40))));
}

TEST(MissingZeroGrad, IsSilentWhereAFewStepsAccumulateOnPurpose) {
  auto run = diverging(30, 8, 30);
  for (StepRow& row : run.rows) row.gradients_left_over = row.step % 4 != 0;
  EXPECT_FALSE(ask("missing_zero_grad", run));
}

TEST(MissingZeroGrad, SeesThatClearingStoppedInTheMiddle) {
  Run run = diverging(60, 8, 30);
  for (StepRow& row : run.rows) row.gradients_left_over = row.step >= 50;
  EXPECT_EQ(hypotheses(run).front().onset_step, 50);
}

}  // namespace
}  // namespace firstfault::reason
