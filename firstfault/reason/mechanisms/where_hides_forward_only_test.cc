// 0 * Inf on the branch that was not selected.
#include "firstfault/reason/mechanisms/hand_made.h"

#include <gtest/gtest.h>

namespace firstfault::reason::hand_made {
namespace {

constexpr auto kName = "where_hides_forward_only";

OriginEvidence exp_backward(double gradient, double result) {
  return of_forward(backward("ExpBackward0", "aten::mul", kNaN, {tensor("self", gradient), tensor("other", result)}),
                    "aten::exp");
}

TEST(WhereHidesForwardOnly, GradientZeroTimesInfiniteDerivative) {
  const auto verdict = ask(kName, exp_backward(0, INFINITY));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->cause, "op_domain");
  EXPECT_TRUE(contains(verdict->because, "gradient 0 times derivative Inf is NaN, inside ExpBackward0"));
  EXPECT_TRUE(contains(verdict->because, "operand 'self' holds 0 at [2, 17]"));
  EXPECT_TRUE(contains(verdict->advice, "double where"));
  EXPECT_EQ(winner(exp_backward(0, INFINITY)), kName);
}

TEST(WhereHidesForwardOnly, InPlaceMultiplicationToo) {
  EXPECT_TRUE(ask(kName, backward("ExpBackward0", "aten::mul_", kNaN, {tensor("self", INFINITY), tensor("other", 0)})));
}

TEST(WhereHidesForwardOnly, IsSilentInTheForwardAndOnOtherProducts) {
  EXPECT_FALSE(ask(kName, exp_backward(1, INFINITY)));
  EXPECT_FALSE(ask(kName, exp_backward(0, 5)));
  EXPECT_FALSE(ask(kName, forward("aten::mul", kNaN, {tensor("self", 0), tensor("other", INFINITY)})));
}

}  // namespace
}  // namespace firstfault::reason::hand_made
