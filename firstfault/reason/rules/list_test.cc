// The list of rules itself.
#include <set>
#include <string_view>

#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

TEST(Rules, HaveOneNameEachAndAllTheirWords) {
  std::set<std::string_view> names;
  for (const Rule& rule : rules()) {
    EXPECT_FALSE(rule.symptom.empty() || rule.evidence.empty() || rule.advice.empty() || rule.source.empty())
        << rule.name;
    EXPECT_FALSE(rule.condition().empty()) << rule.name;
    EXPECT_TRUE(names.insert(rule.name).second) << rule.name;
  }
  EXPECT_EQ(names.size(), 34U);
}

TEST(Rules, AreAllSilentOnAnEmptyRun) { EXPECT_TRUE(hypotheses(firstfault::Run{}).empty()); }

TEST(Rules, AreAllSilentOnOrdinaryRuns) {
  for (const std::int64_t steps : {1, 2, 3, 10, 60, 1000}) {
    EXPECT_TRUE(hypotheses(learning(steps)).empty()) << steps;
    EXPECT_TRUE(hypotheses(flat(steps)).empty()) << steps;
  }
}

TEST(Rules, GiveOneHypothesisForOneCauseAndListEffectsAsItsEvidence) {
  auto run = diverging(30, 8, 30);
  add_fault(run, 38, "reduction_overflow", "overflow");
  add_fault(run, 38, "dtype_overflow", "overflow").op = "AddmmBackward0";
  const auto answers = hypotheses(run);
  ASSERT_EQ(answers.front().cause, "lr_too_high");
  double total = 0;
  for (const Hypothesis& one : answers) total += one.confidence;
  EXPECT_LE(total, 1.01);
  std::int64_t last = -1;
  bool effect = false;
  for (const Evidence& one : answers.front().evidence) {
    EXPECT_GE(one.step, last);
    last = one.step;
    effect = effect || one.text.find("AddmmBackward0") != std::string::npos;
  }
  EXPECT_TRUE(effect);
}

TEST(Rules, JudgeEachOptimizersStepsByThemselves) {
  auto run = learning(200);
  for (StepRow& row : run.rows) {
    row.optimizer = row.step % 2;
    if (row.optimizer == 1) row.loss *= 1000;
  }
  EXPECT_TRUE(hypotheses(run).empty());
}

}  // namespace
}  // namespace firstfault::reason
