// The rule data_invalid.
#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

TEST(DataInvalid, SpeaksForAnInfeasibleTarget) {
  auto run = learning(40);
  add_fault(run, 10, "infeasible_ctc", "data_invalid");
  EXPECT_TRUE(ask("data_invalid", run));
}

TEST(DataInvalid, ReadsADivisionByAStoredStatisticOfZero) {
  auto run = learning(5);
  Operand std;
  std.name = "other";
  std.source = "buffer 'model.norm.std'";
  add_fault(run, 0, "division_by_zero", "op_domain").evidence.operands.push_back(std);
  EXPECT_TRUE(ask("data_invalid", run));
}

TEST(DataInvalid, LeavesADivisionByAComputedZeroToOpDomain) {
  auto run = learning(40);
  Operand below;
  below.name = "other";
  add_fault(run, 20, "division_by_zero", "op_domain").evidence.operands.push_back(below);
  EXPECT_FALSE(ask("data_invalid", run));
}

}  // namespace
}  // namespace firstfault::reason
