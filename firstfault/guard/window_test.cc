#include "firstfault/guard/window.h"

#include <cmath>

#include <gtest/gtest.h>

namespace firstfault::guard {
namespace {

const std::vector<std::string> kNothing, kSomething = {"dead_units"};

using Losses = std::vector<double>;
using Outcome = ExperimentOutcome;

const WindowRun kDiverged{{1, 4, 60, 9e3, NAN}, {}};

Outcome judged(Losses changed) { return judge_window(kDiverged, {std::move(changed), {}}, 0); }

TEST(Window, OneThatLearnsIsCured) { EXPECT_EQ(judged({1, 0.9, 0.8, 0.7, 0.6}), Outcome::cured); }

TEST(Window, OneThatGoesTheSameWayLaterIsDelayed) {
  EXPECT_EQ(judged({1, 1.5, 2, 10, 70, 900, 1e5}), Outcome::delayed);
}

TEST(Window, OneThatLeavesAtTheSameStepFailed) {
  EXPECT_EQ(judged({1, 4, 60, 9e3, NAN}), Outcome::failed);
  EXPECT_EQ(judged({1, INFINITY}), Outcome::failed);
}

TEST(Window, OneThatCreepsUpwardsIsNotCured) { EXPECT_NE(judged({1, 1, 1, 2, 3, 4, 5, 6}), Outcome::cured); }

TEST(Window, OneThatLeavesWithinItsFirstStepsIsSeen) {
  EXPECT_TRUE(diverges({{1, 1e6}, {}}));
  EXPECT_TRUE(diverges({{1, 1e6, 1e12}, {}}));
}

TEST(Window, OneSpikeThatComesBackIsCured) { EXPECT_EQ(judged({1, 1, 1, 20, 1, 1, 1, 1}), Outcome::cured); }

TEST(Window, ALossThatIsNegativeIsMeasuredByItsSize) {
  EXPECT_EQ(judged({-1, -2, -2, -2.5}), Outcome::cured);
  EXPECT_TRUE(diverges({{-1, -2, -900}, {}}));
}

TEST(Window, NothingWasRun) {
  EXPECT_EQ(judged({}), Outcome::not_applicable);
  EXPECT_FALSE(diverges({{}, {}}));
}

const WindowRun kLearnsNothing{{2, 2.1, 1.9, 2, 2, 2, 1.9, 2}, kSomething};

TEST(Window, AFaultIsADivergenceOrWhatAWatchSays) {
  EXPECT_TRUE(shows_a_fault(kDiverged));
  EXPECT_TRUE(shows_a_fault(kLearnsNothing));
  EXPECT_FALSE(shows_a_fault({{1, 1}, kNothing}));
  EXPECT_FALSE(shows_a_fault({{1, 1}, {}}));
}

TEST(Window, OneThatLearnsNothingIsCuredByWhatMakesItHealthyAndLearn) {
  EXPECT_EQ(judge_window(kLearnsNothing, {{2, 1.8, 1.7, 1.6, 1.5, 1.4, 1.3, 1.2}, kNothing}, 0), Outcome::cured);
  EXPECT_EQ(judge_window(kLearnsNothing, {{2, 2, 2, 2, 2, 2, 2, 2}, kNothing}, 0), Outcome::failed);
  EXPECT_EQ(judge_window(kLearnsNothing, {{2, 1.8, 1.7, 1.6, 1.5, 1.4, 1.3, 1.2}, kSomething}, 0), Outcome::failed);
  EXPECT_EQ(judge_window(kLearnsNothing, {{2, 1.8, 1.7, 1.6, 1.5, 1.4, 1.3, NAN}, kNothing}, 0), Outcome::failed);
}

TEST(Window, OneThatLearnsAllTheSameHasOnlyToBecomeHealthy) {
  const WindowRun spikes{{4, 3, 2, 1, 9, 1, 0.5, 0.4}, kSomething};
  EXPECT_EQ(judge_window(spikes, {{4, 3, 2, 1, 1, 0.9, 0.5, 0.4}, kNothing}, 0), Outcome::cured);
}

TEST(Window, APeakOfAWatchedOneFromWhichItCameBackIsNoDivergence) {
  EXPECT_TRUE(diverges({{1, 1, 1, 500, 2, 1, 1, 1}, {}}));
  EXPECT_FALSE(diverges({{1, 1, 1, 500, 2, 1, 1, 1}, kSomething}));
  EXPECT_TRUE(diverges({{1, 1, 1, 500, 600, 900, 900, 900}, kSomething}));
  EXPECT_TRUE(diverges({{1, 1, 1, 1, NAN}, kNothing}));
}

TEST(Window, OneInWhichAnOpGaveInfHasOnlyToBecomeHealthy) {
  const WindowRun absorbed{{2, 2, 2, 2}, kSomething, true};
  EXPECT_EQ(judge_window(absorbed, {{2, 2, 2, 2}, kNothing}, 0), Outcome::cured);
  EXPECT_EQ(judge_window(absorbed, {{2, 2, 2, 2}, kSomething, true}, 0), Outcome::failed);
}

TEST(Window, OneThatEndsTooEarlySaysNothingUnlessItDiverged) {
  EXPECT_EQ(judge_window(kDiverged, {{1, 1.1}, {}}, 5), Outcome::not_applicable);
  EXPECT_EQ(judge_window(kDiverged, {{1, 4, NAN}, {}}, 5), Outcome::failed);
  EXPECT_EQ(judge_window(kLearnsNothing, {{2, 2, 2}, kNothing}, 8), Outcome::not_applicable);
  WindowRun of_two_optimizers{{1, 0.9, 0.8}, {}};
  of_two_optimizers.steps = 6;
  EXPECT_EQ(judge_window(kDiverged, of_two_optimizers, 6), Outcome::cured);
}

TEST(Window, OneThatTheChangeMakesThrowIsNotRefuted) {
  WindowRun threw{{1, 1, 1, 0.9, NAN}, {}};
  threw.threw = true;
  EXPECT_EQ(judge_window(kDiverged, threw, 8), Outcome::threw);
  threw.losses = {NAN};
  EXPECT_EQ(judge_window(kDiverged, threw, 8), Outcome::threw);
  threw.losses = {1, 4, 900, NAN};  // it diverged first
  EXPECT_EQ(judge_window(kDiverged, threw, 8), Outcome::failed);
}

TEST(Window, OneThatLearnsAndShowsSomethingElseSaysNothing) {
  const std::vector<std::string> another = {"optimizer_state"};
  EXPECT_EQ(judge_window(kLearnsNothing, {{2, 1.8, 1.7, 1.6, 1.5, 1.4, 1.3, 1.2}, another}, 0),
            Outcome::not_applicable);
  EXPECT_EQ(judge_window(kLearnsNothing, {{2, 2, 2, 2, 2, 2, 2, 2}, another}, 0), Outcome::failed);
}

TEST(Window, ANegativeLossThatFallsOnIsNoDivergence) {
  EXPECT_FALSE(diverges({{-1, -2, -4, -7, -9, -11, -12, -13}, kNothing}));
  EXPECT_TRUE(diverges({{-1, -1, -1, 0, 2, 4, 6, 8}, kNothing}));
}

TEST(Window, ANegativeLossFallsByItsSize) {
  const WindowRun flat{{-2, -2, -2, -2}, kSomething};
  EXPECT_EQ(judge_window(flat, {{-2, -2.5, -3, -3}, kNothing}, 0), Outcome::cured);
  EXPECT_EQ(judge_window(flat, {{-2, -1.5, -1, -1}, kNothing}, 0), Outcome::failed);
}

}  // namespace
}  // namespace firstfault::guard
