// Numbers as a person reads them.
#include "firstfault/base/numbers.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace firstfault {
namespace {

TEST(ShowNumber, ShowsWholeNumbersWithoutAPoint) {
  EXPECT_EQ(show_number(0.0), "0");
  EXPECT_EQ(show_number(-0.0), "-0");
  EXPECT_EQ(show_number(65504), "65504");
  EXPECT_EQ(show_number(1234567), "1234567");
}

TEST(ShowNumber, KeepsVerySmallAndVeryLargeNumbersApartFromZero) {
  EXPECT_EQ(show_number(1e-38), "1e-38");
  EXPECT_EQ(show_number(static_cast<double>(1e-38F)), "1e-38");
  EXPECT_EQ(show_number(std::numeric_limits<float>::max()), "3.40282e+38");
  EXPECT_EQ(show_number(1e20), "1e+20");
}

TEST(ShowNumber, DoesNotRoundToAWholeNumberThatItIsNot) {
  EXPECT_EQ(show_number(static_cast<double>(1.0000001F)), "1.0000001");
  EXPECT_EQ(show_number(0.9999999999), "0.9999999999");
  EXPECT_EQ(show_number(static_cast<double>(0.93F)), "0.93");
  EXPECT_EQ(show_number(static_cast<double>(88.72284F)), "88.7228");
}

TEST(ShowNumber, NamesNonFiniteValuesAsTheReportDoes) {
  EXPECT_EQ(show_number(std::nan("")), "NaN");
  EXPECT_EQ(show_number(INFINITY), "+Inf");
  EXPECT_EQ(show_number(-INFINITY), "-Inf");
}

TEST(ShowCount, SeparatesThousands) {
  EXPECT_EQ(show_count(0), "0");
  EXPECT_EQ(show_count(999), "999");
  EXPECT_EQ(show_count(5120), "5,120");
  EXPECT_EQ(show_count(1234567), "1,234,567");
  EXPECT_EQ(show_count(-100000), "-100,000");
}

TEST(ShowIndex, WritesBrackets) {
  EXPECT_EQ(show_index(std::vector<std::int64_t>{2, 17}), "[2, 17]");
  EXPECT_EQ(show_index(std::vector<std::int64_t>{}), "[]");
}

}  // namespace
}  // namespace firstfault
