// The backward of a function where its derivative is infinite.
#include "firstfault/reason/mechanisms/hand_made.h"

#include <gtest/gtest.h>

namespace firstfault::reason::hand_made {
namespace {

constexpr auto kName = "derivative_at_boundary";

TEST(DerivativeAtBoundary, SqrtOfZeroHasAnInfiniteDerivative) {
  const auto evidence = of_forward(
      backward("SqrtBackward0", "aten::div", kPosInf, {tensor("self", 1), with_range(tensor("other", 0), 0, 2, 4)}),
      "aten::sqrt");
  const auto verdict = ask(kName, evidence);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->cause, "op_domain");
  EXPECT_EQ(verdict->because,
            "the derivative of sqrt at 0 is 1/(2*sqrt(0)) = infinite: in aten::div, inside SqrtBackward0, operand "
            "'other' holds 0 at [2, 17] (4 of 5,120 elements are 0)");
  EXPECT_EQ(winner(evidence), kName);
}

TEST(DerivativeAtBoundary, ZeroOverZeroSaysThatTheGradientIsZeroAsWell) {
  const auto verdict =
      ask(kName, of_forward(backward("SqrtBackward0", "aten::div_", kNaN, {tensor("self", 0), tensor("other", 0)}),
                            "aten::sqrt_"));
  ASSERT_TRUE(verdict);
  EXPECT_TRUE(contains(verdict->because, "0/0 is NaN"));
}

TEST(DerivativeAtBoundary, PowTakesZeroToANegativePower) {
  const auto verdict = ask(
      kName, of_forward(backward("PowBackward0", "aten::pow", kPosInf, {tensor("self", 0), scalar("exponent", -0.5)}),
                        "aten::pow"));
  ASSERT_TRUE(verdict);
  EXPECT_TRUE(contains(verdict->because, "taken to the power -0.5"));
}

TEST(DerivativeAtBoundary, AcosTakesRsqrtOfZero) {
  EXPECT_TRUE(
      ask(kName, of_forward(backward("AcosBackward0", "aten::rsqrt", kPosInf, {tensor("self", 0)}), "aten::acos")));
}

TEST(DerivativeAtBoundary, TheNodesNameDoesWhereTheForwardOpIsNotKnown) {
  EXPECT_TRUE(
      ask(kName, backward("LinalgVectorNormBackward0", "aten::div", kNaN, {tensor("self", 0), tensor("other", 0)})));
}

TEST(DerivativeAtBoundary, LogsumexpOfARowThatIsAllMinusInf) {
  const auto verdict = ask(kName, of_forward(backward("LogsumexpBackward0", "aten::sub", kNaN,
                                                      {tensor("self", -INFINITY), tensor("other", -INFINITY)}),
                                             "aten::logsumexp"));
  ASSERT_TRUE(verdict);
  EXPECT_TRUE(contains(verdict->because, "a whole row is -Inf"));
}

TEST(DerivativeAtBoundary, IsSilentInTheForwardAndWhereNothingIsZero) {
  EXPECT_FALSE(ask(kName, forward("aten::div", kPosInf, {tensor("self", 1), tensor("other", 0)})));
  EXPECT_FALSE(ask(
      kName, of_forward(backward("SqrtBackward0", "aten::div", kPosInf, {tensor("self", 1e38), tensor("other", 1e-3)}),
                        "aten::sqrt")));
  EXPECT_FALSE(
      ask(kName, of_forward(backward("MulBackward0", "aten::div", kPosInf, {tensor("self", 1), tensor("other", 0)}),
                            "aten::mul")));
}

}  // namespace
}  // namespace firstfault::reason::hand_made
