// Softmax over a row that is all -Inf.
#include "firstfault/reason/mechanisms/hand_made.h"

#include <gtest/gtest.h>

namespace firstfault::reason::hand_made {
namespace {

constexpr auto kName = "fully_masked_row";

Operand masked_scores() {
  Operand self = tensor("self", -INFINITY);
  self.counts.neg_inf = 200;
  return self;
}

OriginEvidence softmax_row(const std::string& op, std::int64_t neg_inf) {
  auto evidence = forward(op, kNaN, {masked_scores()});
  evidence.row = RowEvidence{1, 80, neg_inf, 0, {2}};
  return evidence;
}

TEST(FullyMaskedRow, NamesTheRow) {
  const auto verdict = ask(kName, softmax_row("aten::_softmax", 80));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->cause, "masked_softmax");
  EXPECT_EQ(verdict->because,
            "a softmax over nothing is 0/0 = NaN: all 80 entries of the row [2] along dim 1 are -Inf");
}

TEST(FullyMaskedRow, LogSoftmaxAndInPlaceToo) {
  EXPECT_TRUE(ask(kName, softmax_row("aten::_log_softmax", 80)));
  EXPECT_TRUE(ask(kName, softmax_row("aten::_softmax_", 80)));
}

TEST(FullyMaskedRow, WithoutTheRowItFollowsFromAnOperandOfOnlyFiniteAndMinusInf) {
  EXPECT_TRUE(ask(kName, forward("aten::_softmax", kNaN, {masked_scores()})));
  auto with_pos_inf = forward("aten::_softmax", kNaN, {masked_scores()});
  with_pos_inf.operands[0].counts.pos_inf = 1;
  EXPECT_FALSE(ask(kName, with_pos_inf));
}

TEST(FullyMaskedRow, IsSilentOnARowThatSeesSomething) {
  EXPECT_FALSE(ask(kName, softmax_row("aten::_softmax", 79)));
  EXPECT_FALSE(ask(kName, softmax_row("aten::exp", 80)));
  EXPECT_FALSE(ask(kName, forward("aten::_softmax", kNaN, {unknown(tensor("self", 0))})));
}

}  // namespace
}  // namespace firstfault::reason::hand_made
