// Roots, powers and inverse functions outside of their domain.
#include "firstfault/reason/mechanisms/hand_made.h"

#include <gtest/gtest.h>

namespace firstfault::reason::hand_made {
namespace {

constexpr auto kName = "sqrt_or_rsqrt_domain";

TEST(SqrtOrRsqrtDomain, SqrtOfANegativeNumberIsNaN) {
  const auto verdict = ask(kName, forward("aten::sqrt", kNaN, {with_range(tensor("self", -1e-6), -0.5, 3)}));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->cause, "op_domain");
  EXPECT_EQ(verdict->because,
            "sqrt of -1e-06 is NaN: its operand 'self' holds -1e-06 at [2, 17] (min -0.5); the domain is x >= 0");
}

TEST(SqrtOrRsqrtDomain, RsqrtOfZeroIsInf) {
  EXPECT_TRUE(ask(kName, forward("aten::rsqrt", kPosInf, {tensor("self", 0)})));
  EXPECT_TRUE(ask(kName, forward("aten::rsqrt_", kNaN, {tensor("self", -2)})));
}

TEST(SqrtOrRsqrtDomain, InPlaceSqrtWithoutItsElementFollowsFromTheNaN) {
  EXPECT_TRUE(ask(kName, forward("aten::sqrt_", kNaN, {not_kept(tensor("self", -1))})));
  EXPECT_FALSE(ask(kName, forward("aten::sqrt_", kNaN, {not_kept(with_range(tensor("self", 1), 0, 1))})));
  EXPECT_FALSE(ask(kName, forward("aten::sqrt_", kNaN, {unknown(tensor("self", 1))})));
}

TEST(SqrtOrRsqrtDomain, PowersOfZeroAndOfNegativeNumbers) {
  const auto zero = ask(kName, forward("aten::pow", kPosInf, {tensor("self", 0), scalar("exponent", -0.5)}));
  ASSERT_TRUE(zero);
  EXPECT_TRUE(contains(zero->because, "0 to the power -0.5 is +Inf"));
  EXPECT_TRUE(ask(kName, forward("aten::pow_", kNaN, {tensor("self", -3), scalar("exponent", 0.5)})));
  EXPECT_FALSE(ask(kName, forward("aten::pow", kNaN, {tensor("self", -3), scalar("exponent", 2)})));
  EXPECT_FALSE(ask(kName, forward("aten::pow", kPosInf, {tensor("self", 300), scalar("exponent", 2)})));
}

TEST(SqrtOrRsqrtDomain, InverseFunctionsShowAValueJustOutsideAsItIs) {
  const auto verdict = ask(kName, forward("aten::acos", kNaN, {tensor("self", 1.0000001192092896)}));
  ASSERT_TRUE(verdict);
  EXPECT_TRUE(contains(verdict->because, "acos of 1.0000001 is NaN"));
  EXPECT_TRUE(ask(kName, forward("aten::atanh", kPosInf, {tensor("self", 1)})));
  EXPECT_FALSE(ask(kName, forward("aten::asin", kNaN, {tensor("self", 0.5)})));
}

}  // namespace
}  // namespace firstfault::reason::hand_made
