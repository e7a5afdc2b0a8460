// The rule divergence, the last resort.
#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

TEST(Divergence, SpeaksWhereNoOpWasSeen) {
  auto run = learning(40);
  run.rows[30].loss_state = StepRow::Loss::nan;
  const auto answers = hypotheses(run);
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers.front().cause, "divergence");
  EXPECT_EQ(answers.front().step, 30);
  EXPECT_LT(answers.front().confidence, 0.3);
}

TEST(Divergence, SeesFiniteGrowthThatDoesNotComeBack) {
  auto run = learning(60);
  for (StepRow& row : run.rows) {
    if (row.step < 40) continue;
    row.loss = 100 * wobble(row.step);
    row.gradient_norm *= 50;
  }
  EXPECT_EQ(ask("divergence", run)->step, 40);
}

TEST(Divergence, IsSilentOnHealthyRuns) {
  EXPECT_FALSE(ask("divergence", learning(60)));
  EXPECT_FALSE(ask("divergence", flat(60)));
}

}  // namespace
}  // namespace firstfault::reason
