// x/0 and 0/0, written out or hidden in a mean or a std.
#include "firstfault/reason/mechanisms/hand_made.h"

#include <gtest/gtest.h>

namespace firstfault::reason::hand_made {
namespace {

constexpr auto kName = "division_by_zero";

TEST(DivisionByZero, SaysWhatWasDividedAndWhereTheZeroIs) {
  const auto verdict =
      ask(kName, forward("aten::div", kPosInf, {tensor("self", 3.5), with_range(tensor("other", 0), 0, 2, 1)}));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->cause, "op_domain");
  EXPECT_EQ(verdict->because, "3.5/0 is +Inf: its operand 'other' holds 0 at [2, 17] (1 of 5,120 elements is 0)");
}

TEST(DivisionByZero, ZeroOverZeroIsNaN) {
  const auto verdict = ask(kName, forward("aten::div_", kNaN, {tensor("self", 0), tensor("other", 0)}));
  ASSERT_TRUE(verdict);
  EXPECT_TRUE(contains(verdict->because, "0/0 is NaN"));
}

TEST(DivisionByZero, ACountOfZeroIsAMeanOverNothing) {
  const auto count = with_dtype(with_shape(tensor("other", 0), {}), "int64");
  const auto verdict = ask(kName, forward("aten::div", kNaN, {with_shape(tensor("self", 0), {}), count}));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->cause, "loss_definition");
}

TEST(DivisionByZero, AnIntegerCountNeedsNotToHaveBeenRead) {
  const auto count = with_dtype(unknown(with_shape(tensor("other", 0), {})), "int64");
  const auto verdict = ask(kName, forward("aten::div", kNaN, {with_shape(tensor("self", 0), {}), count}));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->cause, "loss_definition");
}

TEST(DivisionByZero, ReciprocalAndInPlaceWithoutTheElement) {
  EXPECT_TRUE(ask(kName, forward("aten::reciprocal", kPosInf, {tensor("self", 0)})));
  const auto verdict =
      ask(kName, forward("aten::div_", kNaN, {not_kept(tensor("self", 0)), not_kept(tensor("other", 0))}));
  ASSERT_TRUE(verdict);
  EXPECT_TRUE(contains(verdict->because, "only a 0 in it gives this"));
}

TEST(DivisionByZero, MeanOverNoElements) {
  const auto verdict = ask(kName, forward("aten::mean", kNaN, {with_shape(tensor("self", {}), {0, 8})}));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->cause, "loss_definition");
}

TEST(DivisionByZero, StdOfOneSample) {
  auto evidence = forward("aten::std", kNaN, {with_shape(tensor("self", {}), {1, 8})});
  evidence.shape = {8};
  const auto verdict = ask(kName, evidence);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->cause, "loss_definition");
  EXPECT_TRUE(contains(verdict->because, "std of 1 sample divides by n - 1 <= 0"));
  evidence.operands.push_back(scalar("correction", 0));
  EXPECT_FALSE(ask(kName, evidence));
}

TEST(DivisionByZero, IsSilentWhereTheDenominatorWasNotZero) {
  EXPECT_FALSE(ask(kName, forward("aten::div", kPosInf, {tensor("self", 1e38), tensor("other", 1e-5)})));
  EXPECT_FALSE(ask(kName, forward("aten::div", kNaN, {tensor("self", NAN), tensor("other", 0)})));
  EXPECT_FALSE(ask(kName, forward("aten::div", kPosInf, {tensor("self", 1), unknown(tensor("other", 0))})));
  EXPECT_FALSE(ask(kName, forward("aten::mul", kPosInf, {tensor("self", 1), tensor("other", 0)})));
  EXPECT_FALSE(ask(kName, forward("aten::mean", kNaN, {tensor("self", {})})));
}

TEST(DivisionByZero, KnowsANormalisationWithoutEps) {
  const auto input = with_range(tensor("input", std::nullopt), 0.5, 1.5);
  const auto verdict = ask(kName, forward("aten::native_layer_norm", kNaN, {input, scalar("eps", 0)}));
  ASSERT_TRUE(verdict);
  EXPECT_TRUE(contains(verdict->because, "eps is 0"));
  EXPECT_FALSE(ask(kName, forward("aten::native_layer_norm", kNaN, {input, scalar("eps", 1e-5)})));
  const auto large = with_range(tensor("input", std::nullopt), 0, 1e30);
  EXPECT_FALSE(ask(kName, forward("aten::native_layer_norm", kNaN, {large, scalar("eps", 0)})));
}

}  // namespace
}  // namespace firstfault::reason::hand_made
