// The rule loss_definition.
#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

TEST(LossDefinition, SpeaksForAMeanOverNothing) {
  auto run = learning(40);
  add_fault(run, 13, "all_targets_ignored", "loss_definition");
  EXPECT_EQ(ask("loss_definition", run)->step, 13);
}

TEST(LossDefinition, NamesShapesThatBroadcast) {
  auto run = flat(40);
  add_fact(run, FactKind::loss_broadcast, 40).detail = "[100, 1] and [100]";
  const auto answer = ask("loss_definition", run);
  ASSERT_TRUE(answer);
  EXPECT_NE(answer->description.find("[100, 1] and [100]"), std::string::npos);
}

TEST(LossDefinition, IsTheCauseOfTheDivergenceThatRawScoresEndIn) {
  auto run = diverging(30, 8, 30);
  add_fact(run, FactKind::raw_scores, 38, {{"max", 4.2}, {"row_sum", 71}}).op = "aten::nll_loss";
  const auto answers = hypotheses(run);
  ASSERT_FALSE(answers.empty());
  EXPECT_EQ(answers.front().cause, "loss_definition");
  EXPECT_EQ(answers.front().step, 38);
  EXPECT_NE(answers.front().description.find("4.2"), std::string::npos);
}

TEST(LossDefinition, SpeaksForALossThatReadsWhatAMaskHasSetToInf) {
  auto run = learning(40);
  Origin& origin = add_fault(run, 20, "", "");
  origin.op = "aten::nll_loss_forward";
  origin.evidence.first = kPosInf;
  Operand scores;
  scores.name = "self";
  scores.state = OperandState::intended_inf;
  origin.evidence.operands.push_back(scores);
  const auto answers = hypotheses(run);
  ASSERT_FALSE(answers.empty());
  EXPECT_EQ(answers.front().cause, "loss_definition");
  EXPECT_LT(answers.front().confidence, 0.9);
  run.origins.front().evidence.operands.front().state = OperandState::bad;
  EXPECT_FALSE(ask("loss_definition", run));
}

TEST(LossDefinition, IsSilentAboutOneOddBatchAndAboutNegativeLosses) {
  auto run = learning(40);
  for (StepRow& row : run.rows) row.loss -= 2;
  add_fact(run, FactKind::loss_broadcast, 1);
  EXPECT_FALSE(ask("loss_definition", run));
}

}  // namespace
}  // namespace firstfault::reason
