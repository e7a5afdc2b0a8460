// The rule accumulation_not_averaged.
#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

Run accumulating(Run run, int backwards) {
  for (StepRow& row : run.rows) row.backwards = backwards;
  return run;
}

TEST(AccumulationNotAveraged, IsTheCauseOfADivergenceWithManyBackwardsPerStep) {
  const auto answers = hypotheses(accumulating(diverging(0, 4, 100), 32));
  ASSERT_FALSE(answers.empty());
  EXPECT_EQ(answers.front().cause, "accumulation_not_averaged");
}

TEST(AccumulationNotAveraged, StepsBackWhereTheLossWasDivided) {
  auto run = accumulating(diverging(0, 4, 100), 32);
  add_fact(run, FactKind::loss_op, 5, {{"factor", 1.0 / 32}});
  EXPECT_EQ(hypotheses(run).front().cause, "lr_too_high");
}

TEST(AccumulationNotAveraged, IsSilentOnAHealthyRunAndForALossOfTwoParts) {
  EXPECT_FALSE(ask("accumulation_not_averaged", accumulating(learning(40), 32)));
  EXPECT_FALSE(ask("accumulation_not_averaged", accumulating(diverging(0, 4, 100), 2)));
}

}  // namespace
}  // namespace firstfault::reason
