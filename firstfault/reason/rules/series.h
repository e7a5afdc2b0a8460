// A quantity over the steps of a run, and what rules ask of one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace firstfault::reason {

struct Point {
  std::int64_t step = 0;
  double value = 0;
};

/// By step, ascending. Steps may be missing: not measured, or thinned out.
using Series = std::vector<Point>;

/// Middle value; NaN of nothing.
double median(std::vector<double> values);

/// The value below which a share of the values lies; NaN of nothing.
double quantile(std::vector<double> values, double share);

/// Points of steps in [first, last).
Series between(const Series& series, std::int64_t first, std::int64_t last);

/// The newest `count` points before a step.
Series before(const Series& series, std::int64_t step, std::size_t count);

std::vector<double> values_of(const Series& series);

std::optional<double> at(const Series& series, std::int64_t step);

/// Where a quantity that spans decades usually lies: median and spread (1.4826 MAD) of log10 |value|; zeros and
/// non-finite values are left out.
struct Level {
  std::size_t count = 0;
  double middle = 0;  ///< log10
  double spread = 0;  ///< decades
};
Level level(const Series& series);

/// How far a value lies above a level. A spread below `floor` decades counts as `floor`: numbers that hardly move would
/// make everything an outlier.
struct Excess {
  double decades = 0;
  double z = 0;
};
Excess excess(const Level& level, double value, double floor = 0.02);

}  // namespace firstfault::reason
