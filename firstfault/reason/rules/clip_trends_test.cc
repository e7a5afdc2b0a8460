// Clips as evidence for what a run failed of.
#include "firstfault/reason/rules/clip_trends.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

bool speaks_of_clips(const Hypothesis& hypothesis) {
  return std::any_of(hypothesis.evidence.begin(), hypothesis.evidence.end(), [](const Evidence& one) {
    return one.text.find("of the newest 100 steps were clipped") != std::string::npos;
  });
}

TEST(ClipTrends, ThoseAfterTheStepDoNotCount) {
  const auto run = with_clips(learning(400), Condition::rising, 300, 0.21);
  EXPECT_NE(clip_trends(run, 300).rising, nullptr);
  EXPECT_FALSE(clip_trends(run, 299).any());
  EXPECT_TRUE(evidence_of(clip_trends(run, 299)).empty());
}

TEST(ClipTrends, AParameterIsToldOnlyWhereManyStepsAreClipped) {
  EXPECT_TRUE(
      evidence_of(clip_trends(with_clips(learning(400), Condition::dominant, 100, 0.9, "model.a"), 400)).empty());
}

TEST(ClipTrends, AnnounceADivergenceOfTheLearningRate) {
  const auto silent = hypotheses(diverging(300, 12, 3));
  const auto warned = hypotheses(with_clips(diverging(300, 12, 3), Condition::rising, 250, 0.21));
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
  EXPECT_TRUE(hypotheses(with_clips(learning(400), Condition::chronic, 99, 0.6)).empty());
}

}  // namespace
}  // namespace firstfault::reason
