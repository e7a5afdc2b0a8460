// Clips as evidence for what a run failed of.
#include "firstfault/reason/rules/clip_trends.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

Run with_trend(Run run, const std::string& detail, std::int64_t step) {
  add_fact(run, FactKind::clip_trend, 1, {{"share", 0.21}, {"share_before", 0.04}});
  run.facts.back().detail = detail;
  run.facts.back().first_step = run.facts.back().last_step = step;
  return run;
}

bool speaks_of_clips(const Hypothesis& hypothesis) {
  return std::any_of(hypothesis.evidence.begin(), hypothesis.evidence.end(), [](const Evidence& one) {
    return one.text.find("of the newest 100 steps were clipped") != std::string::npos;
  });
}

TEST(ClipTrends, ThoseAfterTheStepDoNotCount) {
  const auto run = with_trend(learning(400), "rising", 300);
  EXPECT_NE(clip_trends(run, 300).rising, nullptr);
  EXPECT_FALSE(clip_trends(run, 299).any());
  EXPECT_TRUE(evidence_of(clip_trends(run, 299)).empty());
}

TEST(ClipTrends, AParameterIsToldOnlyWhereManyStepsAreClipped) {
  EXPECT_TRUE(evidence_of(clip_trends(with_trend(learning(400), "model.a", 100), 400)).empty());
}

TEST(ClipTrends, AnnounceADivergenceOfTheLearningRate) {
  const auto silent = hypotheses(diverging(300, 12, 3));
  const auto warned = hypotheses(with_trend(diverging(300, 12, 3), "rising", 250));
  ASSERT_FALSE(silent.empty());
  ASSERT_FALSE(warned.empty());
  EXPECT_EQ(warned[0].cause, silent[0].cause);
  EXPECT_TRUE(clips_speak_for(warned[0].cause)) << warned[0].cause;
  EXPECT_TRUE(speaks_of_clips(warned[0]));
  EXPECT_EQ(warned[0].evidence.front().step, 250);
  EXPECT_FALSE(speaks_of_clips(silent[0]));
}

TEST(ClipTrends, SayNothingOfASampleThatWasBadAndMakeNoHypothesisOfAHealthyRun) {
  EXPECT_FALSE(clips_speak_for("data_nonfinite"));
  EXPECT_FALSE(clips_speak_for("op_domain"));
  EXPECT_TRUE(hypotheses(with_trend(learning(400), "chronic", 99)).empty());
}

}  // namespace
}  // namespace firstfault::reason
