// The sums on every instruction set of this CPU, of every length up to several chunks, against plain loops.
#include "firstfault/live/measure/moments.h"

#include <cfenv>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>
#include <hwy/highway.h>
#include <hwy/tests/hwy_gtest.h>

#include "firstfault/live/measure/statistics.h"

namespace firstfault::measure {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class MomentsKernels : public hwy::TestWithParamTarget {};
HWY_TARGET_INSTANTIATE_TEST_SUITE_P(MomentsKernels);

Moments measured(const std::vector<float>& values) {
  Moments moments;
  add_moments(values.data(), values.size(), moments);
  return moments;
}

void expect_right(const std::vector<float>& values) {
  Moments expected;
  double magnitudes = 0;
  for (const float value : values) {
    if (!std::isfinite(value)) {
      ++expected.nonfinite;
      continue;
    }
    const double wide = value;
    expected.zeros += wide == 0;
    expected.sum += wide;
    magnitudes += std::abs(wide);
    expected.squares += wide * wide;
    expected.absmax = std::max(expected.absmax, std::abs(wide));
  }
  const Moments moments = measured(values);
  SCOPED_TRACE(values.size());
  EXPECT_EQ(moments.elements, static_cast<std::int64_t>(values.size()));
  EXPECT_EQ(moments.nonfinite, expected.nonfinite);
  EXPECT_EQ(moments.zeros, expected.zeros);
  EXPECT_EQ(moments.absmax, expected.absmax);
  EXPECT_NEAR(moments.sum, expected.sum, 2e-7 * magnitudes);
  EXPECT_NEAR(moments.squares, expected.squares, 2e-7 * expected.squares);
}

std::vector<float> some(std::size_t n, float scale) {
  std::mt19937 random(static_cast<unsigned>(n));
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = scale * normal(random);
  return values;
}

TEST_P(MomentsKernels, agree_with_a_plain_loop_at_any_length) {
  for (std::size_t n = 0; n < 1200; n += n < 130 ? 1 : 37) expect_right(some(n, 1));
  expect_right(some((1 << 20) + 700, 1e-3f));
}

TEST_P(MomentsKernels, neither_overflow_nor_vanish_at_any_scale) {
  for (const float scale : {1e-45f, 1e-38f, 1e-22f, 1e-13f, 1e-12f, 1e12f, 1e13f, 1e19f, 1e30f, 5e37f}) {
    expect_right(some(2000, scale));
  }
}

TEST_P(MomentsKernels, count_what_is_not_finite_and_what_is_0_wherever_it_stands) {
  for (const float odd : {kNan, -kNan, kInf, -kInf, 0.0f, -0.0f, 3e38f, -1e-44f}) {
    for (std::size_t at = 0; at < 1100; at += 61) {
      std::vector<float> values = some(1100, 1);
      values[at] = odd;
      expect_right(values);
    }
  }
  expect_right(std::vector<float>(3000, kNan));
  expect_right(std::vector<float>(3000, 0.0f));
}

TEST_P(MomentsKernels, raise_no_floating_point_exception) {
  std::vector<float> values = some(2000, 1);
  values[100] = kInf, values[101] = -kInf, values[700] = std::numeric_limits<float>::signaling_NaN();
  values[1500] = 3e38f, values[1501] = 3e38f;
  std::feclearexcept(FE_ALL_EXCEPT);
  measured(values);
  EXPECT_EQ(std::fetestexcept(FE_INVALID | FE_OVERFLOW | FE_DIVBYZERO), 0);
}

}  // namespace
}  // namespace firstfault::measure
