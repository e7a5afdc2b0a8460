// A reduction of finite numbers beyond the dtype.
#include "firstfault/reason/mechanisms/hand_made.h"

#include <gtest/gtest.h>

namespace firstfault::reason::hand_made {
namespace {

constexpr auto kName = "reduction_overflow";

TEST(ReductionOverflow, SumOfLargeNumbers) {
  const auto verdict = ask(kName, forward("aten::sum", kPosInf, {with_range(tensor("self", {}), 1e37, 2e38)}));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->cause, "overflow");
  EXPECT_TRUE(contains(verdict->because, "sum of finite values went beyond the largest float32, 3.40282e+38"));
  EXPECT_TRUE(contains(verdict->because, "5,120 elements from 1e+37 to 2e+38"));
}

TEST(ReductionOverflow, SquaresOverflowEarlier) {
  EXPECT_TRUE(
      ask(kName, forward("aten::mse_loss", kPosInf,
                         {with_range(tensor("self", {}), -1e20, 1e20), with_range(tensor("target", {}), 0, 1)})));
  EXPECT_TRUE(ask(kName, forward("aten::_foreach_norm", kPosInf, {with_range(tensor("self[0]", {}), 0, 5e19)})));
}

TEST(ReductionOverflow, IsSilentWhereTheRangeCannotOverflowOrIsNotFinite) {
  EXPECT_FALSE(ask(kName, forward("aten::sum", kPosInf, {with_range(tensor("self", {}), 0, 1)})));
  EXPECT_FALSE(ask(kName, forward("aten::sum", kPosInf, {tensor("self", INFINITY)})));
  EXPECT_FALSE(ask(kName, forward("aten::sum", kNaN, {with_range(tensor("self", {}), 0, 1e38)})));
}

}  // namespace
}  // namespace firstfault::reason::hand_made
