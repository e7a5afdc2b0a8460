// A quantity over the steps of a run.
#include "firstfault/reason/rules/series.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace firstfault::reason {
namespace {

/// Makes the median absolute deviation of a normal distribution its standard deviation (Rousseeuw and Croux 1993).
constexpr double kMadToSigma = 1.4826;

}  // namespace

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const auto place = static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + place, values.end());
  return values[static_cast<std::size_t>(place)];
}

double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

Series between(const Series& series, std::int64_t first, std::int64_t last) {
  Series part;
  std::copy_if(series.begin(), series.end(), std::back_inserter(part),
               [&](const Point& point) { return point.step >= first && point.step < last; });
  return part;
}

Series before(const Series& series, std::int64_t step, std::size_t count) {
  const auto end = std::lower_bound(series.begin(), series.end(), step,
                                    [](const Point& point, std::int64_t wanted) { return point.step < wanted; });
  const auto there = static_cast<std::size_t>(end - series.begin());
  return {end - static_cast<std::ptrdiff_t>(std::min(there, count)), end};
}

std::vector<double> values_of(const Series& series) {
  std::vector<double> values;
  values.reserve(series.size());
  for (const Point& point : series) values.push_back(point.value);
  return values;
}

std::optional<double> at(const Series& series, std::int64_t step) {
  for (const Point& point : series)
    if (point.step == step) return point.value;
  return std::nullopt;
}

Level level(const Series& series) {
  std::vector<double> logs;
  for (const Point& point : series)
    if (point.value != 0 && std::isfinite(point.value)) logs.push_back(std::log10(std::fabs(point.value)));
  Level result{logs.size(), median(logs), 0};
  for (double& one : logs) one = std::fabs(one - result.middle);
  result.spread = kMadToSigma * median(std::move(logs));
  return result;
}

Excess excess(const Level& level, double value, double floor) {
  if (level.count == 0 || value == 0 || std::isnan(value)) return {};
  const double decades = std::isinf(value) ? 1000 : std::log10(std::fabs(value)) - level.middle;
  return {decades, decades / std::max(level.spread, floor)};
}

}  // namespace firstfault::reason
