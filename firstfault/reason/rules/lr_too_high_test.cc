// The rule lr_too_high.
#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

TEST(LrTooHigh, IsTheCauseOfAPlainDivergence) {
  const auto run = diverging(30, 8, 30);
  const auto answers = hypotheses(run);
  ASSERT_FALSE(answers.empty());
  EXPECT_EQ(answers.front().cause, "lr_too_high");
  EXPECT_EQ(answers.front().step, 38);
  EXPECT_NEAR(static_cast<double>(*answers.front().onset_step), 30, 1);
}

TEST(LrTooHigh, SeesParametersThatAreThrownAbout) {
  auto run = flat(60);
  for (StepRow& row : run.rows) row.update_ratio = 0.4 * wobble(row.step);
  EXPECT_TRUE(ask("lr_too_high", run));
}

TEST(LrTooHigh, IsSilentAboutLargeFirstStepsThatSettle) {
  auto run = learning(100);
  const double first[] = {1.65, 1.01, 0.51, 0.33, 0.24, 0.18};
  for (std::size_t i = 0; i < std::size(first); ++i) run.rows[i].update_ratio = first[i];
  for (StepRow& row : run.rows) row.parameter_norm = 0.9 + 0.2 * static_cast<double>(row.step);
  EXPECT_TRUE(hypotheses(run).empty());
}

TEST(LrTooHigh, IsSilentAboutASpikeThatIsOver) {
  auto run = learning(100);
  run.rows[50].loss *= 50;
  run.rows[50].gradient_norm *= 50;
  EXPECT_TRUE(hypotheses(run).empty());
}

Run thrown_off(double rate) {
  Run run = learning(100);
  for (StepRow& row : run.rows) {
    if (row.step == 60) row.lr *= rate;
    if (row.step == 60) row.update_ratio = 3;
    if (row.step > 60) row.loss *= 200;
  }
  return run;
}

TEST(LrTooHigh, NamesTheStepInWhichTheRateJumped) {
  const auto answers = hypotheses(thrown_off(500));
  ASSERT_FALSE(answers.empty());
  EXPECT_EQ(answers.front().cause, "lr_too_high");
  EXPECT_EQ(answers.front().onset_step, 60);
  EXPECT_NE(answers.front().description.find("from 0.01 to 5"), std::string::npos) << answers.front().description;
}

}  // namespace
}  // namespace firstfault::reason
