// exp and its kin beyond the dtype.
#include "firstfault/reason/mechanisms/hand_made.h"

#include <gtest/gtest.h>

namespace firstfault::reason::hand_made {
namespace {

constexpr auto kName = "exp_overflow";

TEST(ExpOverflow, SaysTheLimitOfTheDtype) {
  const auto verdict = ask(kName, forward("aten::exp", kPosInf, {with_range(tensor("self", 95.25), -3, 102)}));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->cause, "overflow");
  EXPECT_EQ(verdict->because,
            "exp of 95.25 is beyond the largest float32, 3.40282e+38, so it is +Inf: its operand 'self' holds 95.25 at "
            "[2, 17] (max 102); exp overflows above 88.7228");
}

TEST(ExpOverflow, HalfPrecisionOverflowsAboveEleven) {
  auto evidence = forward("aten::exp_", kPosInf, {with_dtype(tensor("self", 11.5), "float16")});
  evidence.dtype = "float16";
  const auto verdict = ask(kName, evidence);
  ASSERT_TRUE(verdict);
  EXPECT_TRUE(contains(verdict->because, "exp overflows above 11.0899"));
}

TEST(ExpOverflow, SinhOverflowsBothWays) {
  EXPECT_TRUE(ask(kName, forward("aten::sinh", kNegInf, {tensor("self", -95)})));
  EXPECT_TRUE(ask(kName, forward("aten::cosh", kPosInf, {tensor("self", -95)})));
  EXPECT_FALSE(ask(kName, forward("aten::sinh", kPosInf, {tensor("self", -95)})));
}

TEST(ExpOverflow, InPlaceWithoutTheElement) {
  EXPECT_TRUE(ask(kName, forward("aten::exp_", kPosInf, {not_kept(with_range(tensor("self", 0), -1, 102))})));
  EXPECT_FALSE(ask(kName, forward("aten::exp_", kPosInf, {unknown(tensor("self", 0))})));
}

TEST(ExpOverflow, IsSilentBelowTheLimitAndOnAnInfOperand) {
  EXPECT_FALSE(ask(kName, forward("aten::exp", kPosInf, {tensor("self", 20)})));
  EXPECT_FALSE(ask(kName, forward("aten::exp", kPosInf, {tensor("self", INFINITY)})));
  EXPECT_FALSE(ask(kName, forward("aten::exp", kNaN, {tensor("self", 95)})));
  EXPECT_FALSE(ask(kName, forward("aten::mul", kPosInf, {tensor("self", 95)})));
}

}  // namespace
}  // namespace firstfault::reason::hand_made
