// Medians that can be counted on fingers, and values that must not get in.
#include "firstfault/detect/baseline.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "firstfault/detect/hand_made.h"

namespace firstfault::detect {
namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double mad(std::vector<double> values) {
  const double center = median(values);
  for (double& value : values) value = std::fabs(value - center);
  return median(values);
}

TEST(Window, HasTheMedianAndTheMadOfWhatIsInIt) {
  Window window(5);
  EXPECT_TRUE(std::isnan(window.median()));
  EXPECT_TRUE(std::isnan(window.mad()));
  for (const float value : {1.F, 9.F, 2.F, 4.F}) window.add(value);
  EXPECT_EQ(window.median(), 3);  // 1 2 4 9: distances 2 1 1 6
  EXPECT_EQ(window.mad(), 1.5);
  window.add(7);
  EXPECT_EQ(window.median(), 4);  // 1 2 4 7 9: distances 3 2 0 3 5
  EXPECT_EQ(window.mad(), 3);
}

TEST(Window, ForgetsTheOldestValueOnly) {
  Window window(3);
  for (const float value : {100.F, 1.F, 2.F, 3.F}) window.add(value);
  EXPECT_EQ(window.size(), 3U);
  EXPECT_EQ(window.median(), 2);
  for (const float value : {50.F, 60.F}) window.add(value);
  EXPECT_EQ(window.median(), 50);
}

TEST(Window, AgreesWithTheTextbookOnRandomSeriesWithTies) {
  hand_made::Noise noise(1);
  Window window(16);
  std::vector<double> all;
  for (int i = 0; i < 500; ++i) {
    all.push_back(std::floor(noise.normal() * 3));
    window.add(static_cast<float>(all.back()));
    const auto size = std::min<std::ptrdiff_t>(std::ssize(all), 16);
    const std::vector<double> newest(all.end() - size, all.end());
    ASSERT_EQ(window.median(), median(newest)) << i;
    ASSERT_EQ(window.mad(), mad(newest)) << i;
  }
}

TEST(Baseline, TakesNothingThatIsNotFiniteAndAboveZero) {
  Baseline baseline;
  for (const double poison : {0.0, -1.0, double{NAN}, double{INFINITY}, -double{INFINITY}, 1e300, 1e-300})
    EXPECT_FALSE(baseline.add(poison)) << poison;
  EXPECT_EQ(baseline.size(), 0U);
  EXPECT_TRUE(std::isnan(baseline.median()));
  EXPECT_TRUE(std::isnan(baseline.z(1)));
  EXPECT_TRUE(baseline.add(2));
  EXPECT_NEAR(baseline.median(), 2, 1e-6);
  EXPECT_TRUE(std::isnan(baseline.z(NAN)));
}

TEST(Baseline, FollowsWhereTheQuantityGoes) {
  Baseline baseline(64);
  for (int i = 0; i < 100; ++i) baseline.add(1);
  for (int i = 0; i < 30; ++i) baseline.add(1000);
  EXPECT_EQ(baseline.median(), 1);
  for (int i = 0; i < 20; ++i) baseline.add(1000);
  EXPECT_EQ(baseline.median(), 1000);
}

TEST(Baseline, OfTwoValuesIsTheirGeometricMean) {
  Baseline baseline;
  baseline.add(1);
  baseline.add(1e4);
  EXPECT_NEAR(baseline.median(), 100, 1e-4);
}

TEST(Baseline, IsReadyAfterSixteenValues) {
  Baseline baseline;
  for (int i = 0; i < 15; ++i) baseline.add(1);
  EXPECT_FALSE(baseline.ready());
  EXPECT_TRUE(std::isnan(baseline.early()));
  baseline.add(1);
  EXPECT_TRUE(baseline.ready());
  EXPECT_NEAR(baseline.early(), 1, 1e-6);
}

TEST(Baseline, IsNotMovedByOutliersUpToAThirdOfTheWindow) {
  Baseline baseline(60);
  for (int i = 0; i < 60; ++i) baseline.add(i % 3 == 0 ? 1e30 : 2);
  EXPECT_NEAR(baseline.median(), 2, 1e-5);
}

TEST(Baseline, EstimatesTheSpreadOfNoiseAndCountsZInIt) {
  hand_made::Noise noise(2);
  Baseline baseline(256);
  for (int i = 0; i < 4096; ++i) baseline.add(5 * noise.factor(0.3));
  EXPECT_NEAR(baseline.median(), 5, 0.35);  // three standard errors of a median of 256
  EXPECT_NEAR(baseline.spread(), 0.3, 0.05);
  EXPECT_GT(baseline.z(5 * std::exp(0.3 * 7)), 6);
  EXPECT_TRUE(std::isinf(baseline.z(INFINITY)));
}

TEST(Baseline, ASteadyQuantityHasALeastSpread) {
  Baseline baseline;
  for (int i = 0; i < 64; ++i) baseline.add(1);
  EXPECT_EQ(baseline.spread(), Baseline::kLeastSpread);
  EXPECT_LT(baseline.z(1.2), 4);
}

TEST(Baseline, KeepsItsEarlyMedianSoThatSlowGrowthShows) {
  Baseline baseline(64);
  for (int i = 0; i < 1000; ++i) baseline.add(std::pow(1.01, i));
  EXPECT_NEAR(baseline.early(), std::pow(1.01, 7.5), 1e-3);
  EXPECT_NEAR(baseline.median() / std::pow(1.01, 967.5), 1, 0.1);  // renewed every 16 values
  EXPECT_EQ(baseline.floor(), baseline.early());
  Baseline falling(64);
  for (int i = 0; i < 1000; ++i) falling.add(std::pow(0.99, i));
  EXPECT_EQ(falling.floor(), falling.median());
}

}  // namespace
}  // namespace firstfault::detect
