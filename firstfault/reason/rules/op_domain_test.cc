// The rule op_domain.
#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

TEST(OpDomain, NamesTheOpOfAFaultInACalmRun) {
  auto run = learning(40);
  add_fault(run, 20, "log_of_nonpositive", "op_domain");
  const auto answer = ask("op_domain", run);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->step, 20);
  EXPECT_EQ(answer->op, "aten::log");
  EXPECT_EQ(answer->module, "model.head");
  EXPECT_EQ(answer->line, 27);
  EXPECT_EQ(answer->standing, Standing::observed);
  EXPECT_GE(answer->confidence, 0.9);
}

TEST(OpDomain, IsAnEffectAtTheEndOfADivergence) {
  auto run = diverging(30, 8, 30);
  add_fault(run, 38, "log_of_nonpositive", "op_domain");
  EXPECT_FALSE(ask("op_domain", run));
}

TEST(OpDomain, GuessesWhereFiniteOperandsGaveNaNAndNoMechanismKnowsTheOp) {
  auto run = learning(40);
  Origin& origin = add_fault(run, 20, "", "");
  Operand operand;
  operand.state = OperandState::finite;
  origin.evidence.operands.push_back(operand);
  const auto answer = ask("op_domain", run);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->standing, Standing::inferred);
  EXPECT_LE(answer->confidence, 0.5);
}

}  // namespace
}  // namespace firstfault::reason
