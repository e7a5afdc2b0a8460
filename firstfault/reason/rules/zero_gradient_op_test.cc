// The rule zero_gradient_op.
#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

Run with_gradients(Run run, double first, double second) {
  add_site(run, weight("model.gate", {8, 8}, 0, SiteRole::gradient), [&](std::int64_t) { return healthy(first); });
  add_site(run, weight("model.head", {8, 8}, 1, SiteRole::gradient), [&](std::int64_t) { return healthy(second); });
  return run;
}

TEST(ZeroGradientOp, NamesTheOpAboveGradientsThatAreAlwaysZero) {
  auto run = with_gradients(flat(40), 0, 0.1);
  Fact& fact = add_fact(run, FactKind::constant_op, 40);
  fact.op = "aten::softmax";
  fact.detail = "softmax over one element";
  const auto answers = hypotheses(run);
  ASSERT_FALSE(answers.empty());
  EXPECT_EQ(answers.front().cause, "zero_gradient_op");
  EXPECT_EQ(answers.front().op, "aten::softmax");
  EXPECT_EQ(answers.front().param, "model.gate.weight");
}

TEST(ZeroGradientOp, IsSilentAboutAPartThatIsNotUsed) {
  EXPECT_TRUE(hypotheses(with_gradients(flat(40), 0, 0.1)).empty());
}

TEST(ZeroGradientOp, IsSilentAboutRoundingWithAStraightThroughGradient) {
  auto run = with_gradients(learning(40), 0.1, 0.1);
  add_fact(run, FactKind::constant_op, 40).detail = "round";
  EXPECT_TRUE(hypotheses(run).empty());
}

}  // namespace
}  // namespace firstfault::reason
