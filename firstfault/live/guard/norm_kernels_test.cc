// Every kernel on every instruction set of this CPU, of every length up to several vectors and beyond, against plain
// loops.
#include "firstfault/live/guard/norm_kernels.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <gtest/gtest.h>
#include <hwy/highway.h>
#include <hwy/tests/hwy_gtest.h>

namespace firstfault::guard {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

class NormKernels : public hwy::TestWithParamTarget {};
HWY_TARGET_INSTANTIATE_TEST_SUITE_P(NormKernels);

template <class Element>
constexpr Number kNumber = std::is_same_v<Element, float>       ? Number::fp32
                           : std::is_same_v<Element, double>    ? Number::fp64
                           : std::is_same_v<Element, c10::Half> ? Number::fp16
                                                                : Number::bf16;

template <class Test>
void for_each_type(Test&& test) {
  test(float{}), test(double{}), test(c10::Half{}), test(c10::BFloat16{});
}

template <class Element>
std::vector<Element> some(std::size_t n) {
  std::mt19937 random(static_cast<unsigned>(n));
  std::normal_distribution<float> normal;
  std::vector<Element> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<Element>(normal(random) * (i % 5 == 0 ? 1e-6f : 1.0f));
  return values;
}

// Around one vector, several, and where four streams begin.
std::vector<std::size_t> lengths() {
  std::vector<std::size_t> all{16383, 16384, 16385, 20011, 70001};
  for (std::size_t n = 0; n <= 70; ++n) all.push_back(n);
  return all;
}

template <class Element, class Term>
double by_loop(const std::vector<Element>& values, Term&& term) {
  double sum = 0;
  for (const Element value : values) sum += term(static_cast<double>(static_cast<float>(value)));
  return sum;
}

TEST_P(NormKernels, sums_are_those_of_a_plain_loop) {
  for_each_type([](auto element) {
    using Element = decltype(element);
    for (const std::size_t n : lengths()) {
      auto values = some<Element>(n);
      for (auto& value : values) value = static_cast<Element>(static_cast<float>(value));
      const auto close = [&](double got, double expected) { EXPECT_NEAR(got, expected, 1e-9 * (1 + expected)) << n; };
      close(sum_of_squares(kNumber<Element>, values.data(), n), by_loop(values, [](double x) { return x * x; }));
      close(sum_of_magnitudes(kNumber<Element>, values.data(), n),
            by_loop(values, [](double x) { return std::abs(x); }));
      for (const double p : {3.0, 0.5, 2.5}) {
        close(sum_of_powers(kNumber<Element>, values.data(), n, 2, p),
              by_loop(values, [&](double x) { return std::pow(std::abs(x) / 2, p); }));
      }
      double most = 0;
      for (const Element value : values)
        most = std::max(most, std::abs(static_cast<double>(static_cast<float>(value))));
      EXPECT_EQ(largest_magnitude(kNumber<Element>, values.data(), n), most) << n;
    }
  });
}

TEST_P(NormKernels, one_bad_element_at_any_place_makes_every_sum_not_finite) {
  for_each_type([](auto element) {
    using Element = decltype(element);
    for (const std::size_t n : {1u, 7u, 33u, 64u, 20011u}) {
      for (const double bad : {kInf, -kInf, std::nan("")}) {
        for (std::size_t at = 0; at<n; at += n> 100 ? 997 : 1) {
          auto values = some<Element>(n);
          values[at] = static_cast<Element>(bad);
          EXPECT_FALSE(std::isfinite(sum_of_squares(kNumber<Element>, values.data(), n))) << n << " " << at;
          EXPECT_FALSE(std::isfinite(sum_of_magnitudes(kNumber<Element>, values.data(), n))) << n << " " << at;
          const double largest = largest_magnitude(kNumber<Element>, values.data(), n);
          EXPECT_TRUE(std::isnan(bad) ? std::isnan(largest) : largest == kInf) << n << " " << at;
        }
      }
    }
  });
}

TEST_P(NormKernels, every_half_precision_number_is_read_and_written_back_as_it_is) {
  std::vector<std::uint16_t> words(65536), kept(65536);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = kept[i] = static_cast<std::uint16_t>(i);
  for (const std::size_t i : {1u, 1023u, 1024u, 31743u, 33000u}) {
    const c10::Half value(static_cast<std::uint16_t>(i), c10::Half::from_bits());
    EXPECT_EQ(largest_magnitude(Number::fp16, &words[i], 1), std::abs(static_cast<double>(static_cast<float>(value))));
  }
  for (const Number type : {Number::fp16, Number::bf16}) {
    scale(type, words.data(), words.size(), 1);
    const unsigned infinity = type == Number::fp16 ? 0x7C00 : 0x7F80;
    for (std::size_t i = 0; i < words.size(); ++i) {
      if ((i & 0x7FFF) >= infinity) continue;
      EXPECT_EQ(words[i], kept[i]) << i;
    }
    words = kept;
  }
}

TEST_P(NormKernels, scaling_is_rounded_to_the_nearest_as_ATen_rounds) {
  for_each_type([](auto element) {
    using Element = decltype(element);
    for (const std::size_t n : lengths()) {
      auto values = some<Element>(n);
      const auto before = values;
      scale(kNumber<Element>, values.data(), n, 0.371);
      for (std::size_t i = 0; i < n; ++i) {
        const double exact = static_cast<double>(before[i]) * 0.371;
        const auto nearest = static_cast<double>(static_cast<Element>(exact));
        EXPECT_NEAR(static_cast<double>(values[i]), nearest, std::abs(nearest) * 2e-7 + 1e-45) << n << " " << i;
      }
    }
  });
}

TEST_P(NormKernels, a_factor_below_the_least_normal_float_keeps_its_digits) {
  std::vector<float> values(37, 3e38f);
  scale(Number::fp32, values.data(), values.size(), 1e-42);
  for (const float value : values) EXPECT_NEAR(value, 3e-4, 3e-10);
}

TEST_P(NormKernels, clamping_bounds_each_element_and_gives_the_inner_products) {
  for_each_type([](auto element) {
    using Element = decltype(element);
    for (const std::size_t n : lengths()) {
      auto values = some<Element>(n);
      const auto before = values;
      Clamped sums;
      clamp(kNumber<Element>, values.data(), n, 0.5, 1, sums);
      double across = 0, after = 0;
      std::int64_t changed = 0;
      for (std::size_t i = 0; i < n; ++i) {
        const auto from = static_cast<double>(before[i]);
        const double to = std::min(0.5, std::max(-0.5, from));
        EXPECT_EQ(static_cast<double>(values[i]), to);
        across += from * to, after += to * to, changed += from != to;
      }
      EXPECT_NEAR(sums.across, across, 1e-9 * (1 + across));
      EXPECT_NEAR(sums.after, after, 1e-9 * (1 + after));
      EXPECT_EQ(sums.changed, changed);
    }
  });
}

}  // namespace
}  // namespace firstfault::guard
