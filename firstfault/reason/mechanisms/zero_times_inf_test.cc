// 0 * Inf.
#include "firstfault/reason/mechanisms/hand_made.h"

#include <gtest/gtest.h>

namespace firstfault::reason::hand_made {
namespace {

constexpr auto kName = "zero_times_inf";

TEST(ZeroTimesInf, EitherWayRound) {
  const auto verdict = ask(kName, forward("aten::mul", kNaN, {tensor("self", 0), tensor("other", -INFINITY)}));
  ASSERT_TRUE(verdict);
  EXPECT_TRUE(contains(verdict->because, "0 * Inf is NaN"));
  EXPECT_TRUE(ask(kName, forward("aten::mul_", kNaN, {tensor("self", INFINITY), tensor("other", 0)})));
}

TEST(ZeroTimesInf, IsSilentOnOtherProducts) {
  EXPECT_FALSE(ask(kName, forward("aten::mul", kNaN, {tensor("self", 2), tensor("other", INFINITY)})));
  EXPECT_FALSE(ask(kName, forward("aten::mul", kNaN, {tensor("self", 0), unknown(tensor("other", 0))})));
}

}  // namespace
}  // namespace firstfault::reason::hand_made
