// addcdiv by 0.
#include "firstfault/reason/mechanisms/hand_made.h"

#include <gtest/gtest.h>

namespace firstfault::reason::hand_made {
namespace {

constexpr auto kName = "optimizer_denominator";

TEST(OptimizerDenominator, SaysThatEpsIsZeroInHalfPrecision) {
  const auto evidence = forward("aten::addcdiv_", kNaN,
                                {tensor("self", 1), tensor("tensor1", 0), with_dtype(tensor("tensor2", 0), "float16")});
  const auto verdict = ask(kName, evidence);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->cause, "optimizer_state");
  EXPECT_TRUE(contains(verdict->because, "an eps of 1e-8 rounds to 0 in float16"));
  EXPECT_EQ(winner(evidence), kName);
}

TEST(OptimizerDenominator, ForeachToo) {
  const auto verdict = ask(kName, forward("aten::_foreach_addcdiv_", kPosInf, {tensor("tensor2[4]", 0)}));
  ASSERT_TRUE(verdict);
  EXPECT_FALSE(contains(verdict->because, "float16"));
}

TEST(OptimizerDenominator, ReadsTheEpsOfAFusedStep) {
  const auto with_eps = [](double eps) {
    return forward("aten::_fused_adamw_", kNaN, {tensor("self[0]", std::nullopt), scalar("eps", eps)});
  };
  EXPECT_EQ(winner(with_eps(0)), kName);
  EXPECT_FALSE(ask(kName, with_eps(1e-8)));
}

TEST(OptimizerDenominator, IsSilentOnOtherDenominators) {
  EXPECT_FALSE(ask(kName, forward("aten::addcdiv_", kPosInf, {tensor("tensor2", 1e-8)})));
  EXPECT_FALSE(ask(kName, forward("aten::div_", kPosInf, {tensor("tensor2", 0)})));
}

TEST(OptimizerDenominator, LeavesADivisionThatMakesATensorToTheForward) {
  const auto evidence =
      forward("aten::addcdiv", kPosInf, {tensor("self", 1), tensor("tensor1", 1), tensor("tensor2", 0)});
  EXPECT_FALSE(ask(kName, evidence));
  EXPECT_EQ(winner(evidence), "division_by_zero");
}

}  // namespace
}  // namespace firstfault::reason::hand_made
