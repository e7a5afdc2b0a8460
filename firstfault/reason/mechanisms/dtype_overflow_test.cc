// Finite operands, and a result beyond the dtype.
#include "firstfault/reason/mechanisms/hand_made.h"

#include <gtest/gtest.h>

namespace firstfault::reason::hand_made {
namespace {

constexpr auto kName = "dtype_overflow";

OriginEvidence half(OriginEvidence evidence) {
  evidence.dtype = "float16";
  for (Operand& operand : evidence.operands)
    if (!operand.is_scalar_argument) operand.dtype = "float16";
  return evidence;
}

TEST(DtypeOverflow, ASquareInHalfPrecisionThatFloat32Holds) {
  const auto verdict = ask(kName, half(forward("aten::pow", kPosInf, {tensor("self", 300), scalar("exponent", 2)})));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->cause, "mixed_precision");
  EXPECT_EQ(verdict->because,
            "pow of finite operands went beyond the largest float16, 65504, and gave +Inf: its operand 'self' holds "
            "300 at [2, 17], its argument 'exponent' is 2; the exact result is 90000; float32 holds it");
}

TEST(DtypeOverflow, AFloat32ProductIsAPlainOverflow) {
  const auto verdict = ask(kName, forward("aten::mul_", kPosInf, {tensor("self", 1e30), tensor("other", 1e20)}));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->cause, "overflow");
  EXPECT_FALSE(contains(verdict->because, "float32 holds it"));
}

TEST(DtypeOverflow, AMatrixProductOfHalfPrecisionAlwaysFitsFloat32) {
  const auto verdict = ask(kName, half(forward("aten::mm", kNaN, {tensor("self", {}), tensor("mat2", {})})));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->cause, "mixed_precision");
}

TEST(DtypeOverflow, ACastReadsItsSource) {
  auto evidence = forward("aten::copy_", kPosInf, {unknown(tensor("self", 0)), tensor("src", 1e6)});
  evidence.dtype = "float16";
  const auto verdict = ask(kName, evidence);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->cause, "mixed_precision");
  EXPECT_TRUE(contains(verdict->because, "'src' holds 1000000"));
}

TEST(DtypeOverflow, ACastWhoseElementIsNotKnownIsJudgedByTheRangeOfItsSource) {
  auto evidence = forward("aten::copy_", kPosInf, {unknown(tensor("self", 0)), with_range(tensor("src", {}), 0, 1e6)});
  evidence.dtype = "float16";
  const auto verdict = ask(kName, evidence);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->cause, "mixed_precision");
  EXPECT_TRUE(contains(verdict->because, "'src' reaches 1000000; float32 holds it"));
  evidence.operands[1] = with_range(tensor("src", {}), 0, 10);
  EXPECT_FALSE(ask(kName, evidence));
}

TEST(DtypeOverflow, WordsItCarefullyWhereTheOperandsDoNotTell) {
  const auto verdict =
      ask(kName, half(forward("aten::lerp_", kPosInf, {not_kept(tensor("self", 0)), tensor("end", {})})));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->cause, "overflow");
  EXPECT_TRUE(contains(verdict->because, "cannot be read off"));
}

TEST(DtypeOverflow, LeavesADivisionAloneWhoseDenominatorMayBeZero) {
  EXPECT_FALSE(ask(kName, forward("aten::div_", kPosInf, {not_kept(tensor("self", 0)), tensor("other", {})})));
}

TEST(DtypeOverflow, IsSilentWhereTheResultFitsOrAnOperandIsNotFinite) {
  EXPECT_FALSE(ask(kName, forward("aten::mul", kPosInf, {tensor("self", 2), tensor("other", 3)})));
  EXPECT_FALSE(ask(kName, forward("aten::mul", kPosInf, {tensor("self", INFINITY), tensor("other", 3)})));
  EXPECT_FALSE(ask(kName, forward("aten::mm", kPosInf,
                                  {with_range(tensor("self", {}), 0, 1), with_range(tensor("mat2", {}), 0, 1)})));
  EXPECT_FALSE(ask(kName, forward("aten::add", kNaN, {tensor("self", 2), tensor("other", 3)})));
}

}  // namespace
}  // namespace firstfault::reason::hand_made
