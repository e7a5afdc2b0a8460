// The rule overflow.
#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

TEST(Overflow, IsTheCauseInACalmRun) {
  auto run = learning(40);
  add_fault(run, 20, "exp_overflow", "overflow").op = "aten::exp";
  const auto answer = ask("overflow", run);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->op, "aten::exp");
  EXPECT_GE(answer->confidence, 0.9);
}

TEST(Overflow, IsAnEffectAtTheEndOfADivergence) {
  auto run = diverging(30, 8, 30);
  add_fault(run, 38, "reduction_overflow", "overflow");
  EXPECT_FALSE(ask("overflow", run));
}

TEST(Overflow, IsNotSureOfAProductInTheBackward) {
  auto run = learning(40);
  add_fault(run, 20, "dtype_overflow", "overflow").phase = Phase::backward;
  EXPECT_LT(ask("overflow", run)->confidence, 0.7);
}

}  // namespace
}  // namespace firstfault::reason
