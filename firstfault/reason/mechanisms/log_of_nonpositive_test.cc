// log at and below the edge of its domain.
#include "firstfault/reason/mechanisms/hand_made.h"

#include <gtest/gtest.h>

namespace firstfault::reason::hand_made {
namespace {

constexpr auto kName = "log_of_nonpositive";

TEST(LogOfNonpositive, LogOfZeroSaysWhereTheZeroIsAndHowManyThereAre) {
  const auto verdict = ask(kName, forward("aten::log", kNegInf, {with_range(tensor("self", 0), 0, 0.93, 131)}));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->cause, "op_domain");
  EXPECT_EQ(verdict->because, "log of 0 is -Inf: its operand 'self' holds 0 at [2, 17] (131 of 5,120 elements are 0)");
  EXPECT_TRUE(contains(verdict->advice, "inside the log"));
}

TEST(LogOfNonpositive, LogOfANegativeNumberIsNaN) {
  const auto verdict = ask(kName, forward("aten::log2", kNaN, {with_range(tensor("self", -0.25), -0.3, 1)}));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->because, "log2 of -0.25 is NaN: its operand 'self' holds -0.25 at [2, 17] (min -0.3)");
}

TEST(LogOfNonpositive, InPlaceLogWhoseOperandWasKeptIsReadLikeAnyOther) {
  Operand self = tensor("self", 0);
  self.was_overwritten = true;
  EXPECT_TRUE(ask(kName, forward("aten::log_", kNegInf, {self})));
}

TEST(LogOfNonpositive, ForeachLogWithoutTheElementSaysThatItFollows) {
  const auto verdict = ask(kName, forward("aten::_foreach_log_", kNegInf, {not_kept(tensor("self[3]", 0))}));
  ASSERT_TRUE(verdict);
  EXPECT_TRUE(contains(verdict->because, "log of 0 is -Inf"));
  EXPECT_TRUE(contains(verdict->because, "not kept"));
}

TEST(LogOfNonpositive, Log1pHasItsEdgeAtMinusOne) {
  EXPECT_TRUE(ask(kName, forward("aten::log1p", kNegInf, {tensor("self", -1)})));
  EXPECT_TRUE(ask(kName, forward("aten::log1p", kNaN, {tensor("self", -1.5)})));
  EXPECT_FALSE(ask(kName, forward("aten::log1p", kNaN, {tensor("self", -0.5)})));
}

TEST(LogOfNonpositive, XlogyReadsItsSecondOperand) {
  EXPECT_TRUE(ask(kName, forward("aten::xlogy", kNegInf, {tensor("self", 0.5), tensor("other", 0)})));
  EXPECT_FALSE(ask(kName, forward("aten::xlogy", kNegInf, {tensor("self", 0), tensor("other", 0.5)})));
}

TEST(LogOfNonpositive, LogitIsInfiniteAtBothEnds) {
  EXPECT_TRUE(ask(kName, forward("aten::logit", kPosInf, {tensor("self", 1)})));
  EXPECT_TRUE(ask(kName, forward("aten::logit", kNaN, {tensor("self", 1.5)})));
  EXPECT_FALSE(ask(kName, forward("aten::logit", kNaN, {tensor("self", 0.5)})));
}

TEST(LogOfNonpositive, IsSilentWhereTheEvidenceDoesNotCarryIt) {
  EXPECT_FALSE(ask(kName, forward("aten::log", kNaN, {tensor("self", 0.5)})));
  EXPECT_FALSE(ask(kName, forward("aten::log", kNaN, {unknown(tensor("self", 0))})));
  EXPECT_FALSE(ask(kName, forward("aten::log", kNaN, {not_kept(with_range(tensor("self", 1), 0.1, 1))})));
  EXPECT_FALSE(ask(kName, forward("aten::log", kNaN, {with_dtype(tensor("self", -1), "complex64")})));
  EXPECT_FALSE(ask(kName, forward("aten::log", kNegInf, {})));
  EXPECT_FALSE(ask(kName, forward("aten::exp", kNegInf, {tensor("self", 0)})));
}

TEST(LogOfNonpositive, KnowsTheNanThatLogdetWritesForANegativeDeterminant) {
  auto evidence = forward("aten::logdet", kNaN, {scalar("s", NAN)});
  evidence.inner_op = "aten::scalar_tensor";
  const auto verdict = ask(kName, evidence);
  ASSERT_TRUE(verdict);
  EXPECT_TRUE(contains(verdict->because, "negative determinant"));
  EXPECT_EQ(winner(evidence), kName);
}

}  // namespace
}  // namespace firstfault::reason::hand_made
