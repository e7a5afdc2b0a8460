#include "firstfault/guard/window.h"

#include <cmath>

#include <gtest/gtest.h>

namespace firstfault::guard {
namespace {

using Losses = std::vector<double>;
using Outcome = ExperimentOutcome;

const Losses kDiverged = {1, 4, 60, 9e3, NAN};

TEST(Window, OneThatLearnsIsCured) { EXPECT_EQ(judge_window(kDiverged, {1, 0.9, 0.8, 0.7, 0.6}), Outcome::cured); }

TEST(Window, OneThatGoesTheSameWayLaterIsDelayed) {
  EXPECT_EQ(judge_window(kDiverged, {1, 1.5, 2, 10, 70, 900, 1e5}), Outcome::delayed);
}

TEST(Window, OneThatLeavesAtTheSameStepFailed) {
  EXPECT_EQ(judge_window(kDiverged, {1, 4, 60, 9e3, NAN}), Outcome::failed);
  EXPECT_EQ(judge_window(kDiverged, {1, INFINITY}), Outcome::failed);
}

TEST(Window, OneThatCreepsUpwardsIsNotCured) {
  EXPECT_NE(judge_window(kDiverged, {1, 1, 1, 2, 3, 4, 5, 6}), Outcome::cured);
}

TEST(Window, OneThatLeavesWithinItsFirstStepsIsSeen) {
  EXPECT_TRUE(left_its_level({1, 1e6}));
  EXPECT_TRUE(left_its_level({1, 1e6, 1e12}));
}

TEST(Window, OneSpikeThatComesBackIsCured) {
  EXPECT_EQ(judge_window(kDiverged, {1, 1, 1, 20, 1, 1, 1, 1}), Outcome::cured);
}

TEST(Window, ALossThatIsNegativeIsMeasuredByItsSize) {
  EXPECT_EQ(judge_window(kDiverged, {-1, -2, -2, -2.5}), Outcome::cured);
  EXPECT_TRUE(left_its_level({-1, -2, -900}));
}

TEST(Window, NothingWasRun) {
  EXPECT_EQ(judge_window(kDiverged, {}), Outcome::not_applicable);
  EXPECT_FALSE(left_its_level({}));
}

}  // namespace
}  // namespace firstfault::guard
