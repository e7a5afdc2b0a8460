// A mean over targets of which none counts.
#include "firstfault/reason/mechanisms/hand_made.h"

#include <gtest/gtest.h>

namespace firstfault::reason::hand_made {
namespace {

constexpr auto kName = "all_targets_ignored";

OriginEvidence nll(double min_target, double max_target) {
  auto target = with_dtype(with_shape(with_range(tensor("target", {}), min_target, max_target), {16}), "int64");
  auto evidence = forward("aten::nll_loss_forward", kNaN, {tensor("self", {}), target, scalar("ignore_index", -100)});
  evidence.shape = {};
  evidence.index = {};
  return evidence;
}

TEST(AllTargetsIgnored, EveryTargetIsIgnoreIndex) {
  const auto verdict = ask(kName, nll(-100, -100));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->cause, "loss_definition");
  EXPECT_EQ(verdict->because, "the mean over no target is 0/0 = NaN: every target is ignore_index (-100), 16 of them");
}

TEST(AllTargetsIgnored, FollowsWhereTheTargetsWereNotRead) {
  auto evidence = nll(0, 0);
  evidence.op = "aten::nll_loss2d_forward";
  evidence.operands = {tensor("self", {})};
  EXPECT_TRUE(ask(kName, evidence));
}

TEST(AllTargetsIgnored, WeightsThatSumToZero) {
  auto evidence = nll(0, 3);
  evidence.operands.push_back(with_shape(tensor("weight", {}), {4}));
  EXPECT_TRUE(contains(ask(kName, evidence)->because, "class weights"));
}

TEST(AllTargetsIgnored, IsSilentWhereSomeTargetsCountOrTheScoresWereNotFinite) {
  EXPECT_FALSE(ask(kName, nll(-100, 3)));
  auto evidence = nll(-100, -100);
  evidence.operands[0] = unknown(evidence.operands[0]);
  EXPECT_FALSE(ask(kName, evidence));
  auto inf = nll(-100, -100);
  inf.first = kPosInf;
  EXPECT_FALSE(ask(kName, inf));
}

}  // namespace
}  // namespace firstfault::reason::hand_made
