// Series whose growth, slope and swing are known.
#include "firstfault/detect/trend.h"

#include <chrono>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "firstfault/detect/hand_made.h"

namespace firstfault::detect {
namespace {

using hand_made::Noise;

template <class F>
std::vector<double> series(int count, F value) {
  std::vector<double> out;
  for (int i = 0; i < count; ++i) out.push_back(value(i));
  return out;
}

TEST(Median, LeavesOutWhatIsNotFinite) {
  EXPECT_EQ(median(std::vector<double>{3, NAN, 1, INFINITY, 2}), 2);
  EXPECT_EQ(median(std::vector<double>{4, 1, 3, 2}), 2.5);
  EXPECT_EQ(mad(std::vector<double>{1, 2, NAN, 4, 9}), 1.5);
  EXPECT_TRUE(std::isnan(median(std::vector<double>{NAN})));
}

TEST(BlockMedians, SmoothsAndLeavesOutEmptyBlocks) {
  const std::vector<double> values = {1, 2, 300, NAN, NAN, NAN, 7, 8, 9};
  EXPECT_EQ(block_medians(values, 3), (std::vector<double>{2, 8}));
  EXPECT_EQ(block_medians(std::vector<double>{5, 6}, 8), (std::vector<double>{5, 6}));
}

TEST(Slope, OfALineIsThatLine) {
  const Slope line = slope(series(20, [](int i) { return 3 + 0.5 * i; }));
  EXPECT_DOUBLE_EQ(line.per_step, 0.5);
  EXPECT_DOUBLE_EQ(line.at_start, 3);
  EXPECT_DOUBLE_EQ(line.at_end, 12.5);
  EXPECT_GT(line.rising, 0.999);
  EXPECT_LT(line.falling, 0.001);
  EXPECT_EQ(line.used, 20U);
}

TEST(Slope, IsNotBentByAFourthOfOutliers) {
  const Slope line = slope(series(40, [](int i) { return i % 4 == 1 ? 1e9 : 2.0 * i; }));
  EXPECT_NEAR(line.per_step, 2, 0.2);
}

TEST(Slope, UsesThePositionsOfThinnedRows) {
  const std::vector<double> at = {0, 10, 20, 100, 110};
  const std::vector<double> values = {0, 1, NAN, 10, 11};
  EXPECT_DOUBLE_EQ(slope(values, at).per_step, 0.1);
  EXPECT_EQ(slope(values, at).used, 4U);
}

TEST(Slope, OfNoiseIsNoTrend) {
  Noise noise(3);
  const Slope line = slope(series(100, [&](int) { return noise.normal(); }));
  EXPECT_LT(line.rising, 0.98);
  EXPECT_LT(line.falling, 0.98);
  EXPECT_NEAR(line.per_step, 0, 3 * line.error);
}

TEST(Slope, OfFewValuesIsNotKnown) {
  const Slope line = slope(std::vector<double>{1, 2, 3, NAN});
  EXPECT_TRUE(std::isnan(line.per_step));
  EXPECT_EQ(line.rising, 0);
}

TEST(Growth, FindsTheFactorOfANoisyExplosion) {
  Noise noise(4);
  const Growth found = growth(series(60, [&](int i) { return 0.01 * std::pow(1.5, i) * noise.factor(0.3); }));
  EXPECT_NEAR(found.factor, 1.5, 0.02);
  EXPECT_GT(found.growing, 0.999);
  EXPECT_GT(found.linear, 0.9);
  EXPECT_NEAR(std::log(found.total) / std::log(1.5), 59, 3);
}

TEST(Growth, LeavesOutWhatHasNoLogarithm) {
  const Growth found = growth(std::vector<double>{1, 0, 4, NAN, 16, INFINITY, 64, -3, 256});
  EXPECT_NEAR(found.factor, 2, 1e-9);
  EXPECT_EQ(found.used, 5U);
}

TEST(Growth, OfAConstantIsNone) {
  const Growth found = growth(series(50, [](int) { return 0.3; }));
  EXPECT_DOUBLE_EQ(found.factor, 1);
  EXPECT_NEAR(found.growing, 0.5, 1e-9);
  EXPECT_EQ(found.linear, 0);
}

TEST(Growth, ThatFlattensOutIsNotLinearInTheLog) {
  const Growth found = growth(series(100, [](int i) { return 1 - std::exp(-i / 5.0) + 1e-3; }));
  EXPECT_LT(found.factor, 1.001);
}

TEST(Growth, OfAHundredThousandStepsIsQuickAndRight) {
  const auto values = series(100000, [](int i) { return std::pow(1.0001, i); });
  const auto begin = std::chrono::steady_clock::now();
  const Growth found = growth(values);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(500));
  EXPECT_NEAR(found.factor, 1.0001, 1e-6);
  EXPECT_EQ(found.used, 100000U);
}

TEST(Oscillation, OfAZigzagThatGrows) {
  const Oscillation found =
      oscillation(series(20, [](int i) { return 1 + (i % 2 ? 1 : -1) * 0.1 * std::pow(1.3, i); }));
  EXPECT_EQ(found.flips, 1);
  EXPECT_GT(found.confidence, 0.99);
  EXPECT_NEAR(found.swings.factor, 1.3, 1e-6);
  EXPECT_GT(found.swings.growing, 0.99);
}

TEST(Oscillation, NoiseTurnsAtTwoThirdsAndIsNone) {
  Noise noise(5);
  const Oscillation found = oscillation(series(256, [&](int) { return noise.normal(); }));
  EXPECT_NEAR(found.flips, 2.0 / 3, 0.08);
  EXPECT_LT(found.confidence, 0.99);
}

TEST(Oscillation, ALossThatFallsHasNone) {
  const Oscillation found = oscillation(series(50, [](int i) { return std::exp(-i / 10.0); }));
  EXPECT_EQ(found.flips, 0);
  EXPECT_LT(found.confidence, 0.01);
}

TEST(LossTrend, AFallingLossFalls) {
  Noise noise(6);
  const LossTrend found =
      loss_trend(series(500, [&](int i) { return (0.2 + 2 * std::exp(-i / 150.0)) * noise.factor(0.2); }));
  EXPECT_GT(found.falling, 0.999);
  EXPECT_LT(found.change, -0.5);
  EXPECT_LT(found.flat, 0.01);
}

TEST(LossTrend, ANoisyPlateauIsFlat) {
  Noise noise(7);
  const LossTrend found = loss_trend(series(1000, [&](int) { return 1.6 * noise.factor(0.05); }));
  EXPECT_GT(found.flat, 0.9);
  EXPECT_NEAR(found.change, 0, 0.05);
  EXPECT_LT(found.falling, 0.99);
}

TEST(LossTrend, SaysThatItDoesNotKnowWhereNoiseHidesTheSlope) {
  Noise noise(8);
  const LossTrend found = loss_trend(series(20, [&](int) { return noise.factor(1); }));
  EXPECT_LT(found.flat, 0.6);
  EXPECT_LT(found.rising, 0.99);
  EXPECT_LT(found.falling, 0.99);
}

TEST(LossTrend, IsTheSameAtAnotherScale) {
  Noise noise(9);
  const auto small = series(200, [&](int i) { return (1 - i / 400.0) * noise.factor(0.1); });
  std::vector<double> large;
  for (const double value : small) large.push_back(1e6 * value);
  EXPECT_NEAR(loss_trend(small).change, loss_trend(large).change, 1e-9);
  EXPECT_NEAR(loss_trend(small).falling, loss_trend(large).falling, 1e-9);
}

TEST(LossTrend, OfZeroThroughoutIsFlat) {
  const LossTrend found = loss_trend(series(30, [](int) { return 0; }));
  EXPECT_EQ(found.flat, 1);
  EXPECT_EQ(found.change, 0);
}

TEST(DepthFit, OneAndAHalfPerLayerOverFiftyLayersIsSixTimesTenToTheEight) {
  const auto orders = series(51, [](int i) { return i; });
  const auto norms = series(51, [](int i) { return 1e-9 * std::pow(1.5, i); });
  const DepthFit found = depth_fit(orders, norms);
  EXPECT_NEAR(found.lambda, 1.5, 1e-9);
  EXPECT_NEAR(found.backward, 1 / 1.5, 1e-9);
  EXPECT_NEAR(found.last / found.first / 6.376e8, 1, 1e-3);
  EXPECT_GT(found.confidence, 0.99);
  EXPECT_EQ(found.layers, 51U);
}

TEST(DepthFit, TakesLayersInAnyOrderAndModulesBetweenThem) {
  const std::vector<double> orders = {6, 2, 0, 4, -1, 6, 8};
  const std::vector<double> norms = {64, 4, 1, 16, 1e9, 64, 256};
  const DepthFit found = depth_fit(orders, norms);
  EXPECT_NEAR(found.lambda, 4, 1e-9);  // per layer, not per place in the order
  EXPECT_EQ(found.layers, 5U);
  EXPECT_NEAR(found.first, 1, 1e-9);
  EXPECT_NEAR(found.last, 256, 1e-6);
}

TEST(DepthFit, EqualLayersGiveOneAndNoConfidence) {
  Noise noise(10);
  const auto orders = series(12, [](int i) { return i; });
  const auto norms = series(12, [&](int) { return noise.factor(0.3); });
  const DepthFit found = depth_fit(orders, norms);
  EXPECT_NEAR(found.lambda, 1, 0.15);
  EXPECT_LT(found.confidence, 0.5);
}

}  // namespace
}  // namespace firstfault::detect
