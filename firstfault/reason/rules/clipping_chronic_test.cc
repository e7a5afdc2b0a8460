// The rule clipping_chronic.
#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

Run clipped(Run run, double coefficient) {
  add_fact(run, FactKind::clipped, run.steps, {{"norm", 1 / coefficient}, {"coefficient", coefficient}});
  return run;
}

TEST(ClippingChronic, IsANoteWhereNothingIsLearnt) {
  const auto answer = ask("clipping_chronic", clipped(flat(200), 1e-3));
  ASSERT_TRUE(answer);
  EXPECT_LT(answer->confidence, 0.5);
}

TEST(ClippingChronic, IsSilentAboutLightClippingAndWhereTheRunLearns) {
  EXPECT_FALSE(ask("clipping_chronic", clipped(flat(200), 0.3)));
  EXPECT_FALSE(ask("clipping_chronic", clipped(learning(200), 1e-3)));
}

TEST(ClippingChronic, AShareThatRisesNamesTheStepAndTheParameterBehindIt) {
  auto run = with_clips(flat(400), Condition::rising, 215, 0.21);
  run = with_clips(std::move(run), Condition::dominant, 250, 0.9, "model.head.weight");
  const auto answer = ask("clipping_chronic", run);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->step, 215);
  EXPECT_EQ(answer->param, "model.head.weight");
  ASSERT_EQ(answer->evidence.size(), 2u);
  EXPECT_EQ(answer->evidence[0].text, "21 % of the newest 100 steps were clipped, where 4 % were at the beginning");
  EXPECT_EQ(answer->evidence[1].text, "'model.head.weight' is behind most clips");
}

TEST(ClippingChronic, MoreThanHalfOfTheStepsWillDoOnlyWhereTheLossRises) {
  auto rising = flat(400);
  for (StepRow& row : rising.rows) row.loss *= 1 + 0.01 * static_cast<double>(row.step);
  const auto answer = ask("clipping_chronic", with_clips(rising, Condition::chronic, 99, 0.7));
  ASSERT_TRUE(answer);
  EXPECT_LT(answer->confidence, 0.4);
  EXPECT_FALSE(ask("clipping_chronic", with_clips(flat(400), Condition::chronic, 99, 0.7)));
}

TEST(ClippingChronic, IsSilentAboutTrendsWhereTheRunLearnsAndAboutAParameterAlone) {
  EXPECT_FALSE(ask("clipping_chronic", with_clips(learning(400), Condition::chronic, 99, 0.9)));
  EXPECT_FALSE(ask("clipping_chronic", with_clips(flat(400), Condition::dominant, 99, 0.9, "model.head.weight")));
}

}  // namespace
}  // namespace firstfault::reason
