// The rule optimizer_not_linked.
#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

TEST(OptimizerNotLinked, IsSureWhereTheOptimizerHoldsAnotherModel) {
  auto run = flat(40);
  add_fact(run, FactKind::not_held, 40, {{"count", 6}}).detail = "model.fc1.weight, model.fc1.bias";
  add_fact(run, FactKind::foreign, 40, {{"count", 6}});
  const auto answers = hypotheses(run);
  ASSERT_FALSE(answers.empty());
  EXPECT_EQ(answers.front().cause, "optimizer_not_linked");
  EXPECT_GE(answers.front().confidence, 0.9);
}

TEST(OptimizerNotLinked, IsSilentWhereEveryGradientIsUsed) { EXPECT_FALSE(ask("optimizer_not_linked", flat(40))); }

}  // namespace
}  // namespace firstfault::reason
