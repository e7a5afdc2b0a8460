// Inf - Inf.
#include "firstfault/reason/mechanisms/hand_made.h"

#include <gtest/gtest.h>

namespace firstfault::reason::hand_made {
namespace {

constexpr auto kName = "inf_minus_inf";

TEST(InfMinusInf, BetweenOperands) {
  const auto verdict = ask(kName, forward("aten::sub", kNaN, {tensor("self", -INFINITY), tensor("other", -INFINITY)}));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->cause, "op_domain");
  EXPECT_TRUE(contains(verdict->because, "Inf - Inf is NaN: its operand 'self' holds -Inf at [2, 17]"));
  EXPECT_TRUE(ask(kName, forward("aten::add_", kNaN, {tensor("self", INFINITY), tensor("other", -INFINITY)})));
}

TEST(InfMinusInf, AmongTheElementsOfASum) {
  auto evidence = forward("aten::sum", kNaN, {tensor("self", {})});
  evidence.shape = {};
  evidence.operands[0].counts = {0, 2, 3};
  EXPECT_TRUE(contains(ask(kName, evidence)->because, "2 +Inf and 3 -Inf"));
  evidence.operands[0].counts = {0, 2, 0};
  EXPECT_FALSE(ask(kName, evidence));
}

TEST(InfMinusInf, IsSilentWhereTheInfinitiesDoNotCancel) {
  EXPECT_FALSE(ask(kName, forward("aten::sub", kNaN, {tensor("self", INFINITY), tensor("other", -INFINITY)})));
  EXPECT_FALSE(ask(kName, forward("aten::add", kNaN, {tensor("self", INFINITY), tensor("other", 1)})));
}

}  // namespace
}  // namespace firstfault::reason::hand_made
