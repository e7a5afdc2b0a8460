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

TEST(OptimizerDenominator, IsSilentOnOtherDenominators) {
  EXPECT_FALSE(ask(kName, forward("aten::addcdiv_", kPosInf, {tensor("tensor2", 1e-8)})));
  EXPECT_FALSE(ask(kName, forward("aten::div_", kPosInf, {tensor("tensor2", 0)})));
}

}  // namespace
}  // namespace firstfault::reason::hand_made
