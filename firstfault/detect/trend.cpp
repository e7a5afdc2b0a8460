// Theil–Sen slopes and Mann–Kendall tests: ranks and medians, so that single values decide nothing.
#include "firstfault/detect/trend.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "firstfault/detect/baseline.h"

namespace firstfault::detect {
namespace {

constexpr std::size_t kFewest = 4;
constexpr std::size_t kMost = 256;
constexpr double kInterval = 1.6449;  // normal quantile of 0.95: a two-sided interval of 90 %
constexpr std::size_t kSmoothed = 32;

struct Point {
  double x = 0;
  double y = 0;
};

double median_of(std::vector<double>& values) {
  if (values.empty()) return kUnknown;
  const auto half = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), half, values.end());
  if (values.size() % 2) return *half;
  return 0.5 * (*half + *std::max_element(values.begin(), half));
}

double normal_below(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

std::vector<Point> usable(std::span<const double> values, std::span<const double> at) {
  std::vector<Point> points;
  points.reserve(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double x = at.empty() ? static_cast<double>(i) : i < at.size() ? at[i] : kUnknown;
    if (std::isfinite(values[i]) && std::isfinite(x)) points.push_back({x, values[i]});
  }
  return points;
}

/// Medians, in x and y, of `blocks` consecutive parts.
std::vector<Point> thinned(const std::vector<Point>& points, std::size_t blocks) {
  if (points.size() <= blocks) return points;
  std::vector<Point> out;
  for (std::size_t block = 0; block < blocks; ++block) {
    std::vector<double> x, y;
    for (std::size_t i = block * points.size() / blocks; i < (block + 1) * points.size() / blocks; ++i) {
      x.push_back(points[i].x);
      y.push_back(points[i].y);
    }
    out.push_back({median_of(x), median_of(y)});
  }
  return out;
}

struct Pairs {
  std::vector<double> slopes;
  double score = 0;  // Kendall's S: pairs that rise minus pairs that fall
};

Pairs pairs_of(const std::vector<Point>& points) {
  Pairs pairs;
  pairs.slopes.reserve(points.size() * (points.size() - 1) / 2);
  for (std::size_t i = 0; i < points.size(); ++i) {
    for (std::size_t j = i + 1; j < points.size(); ++j) {
      if (!(points[j].x > points[i].x)) continue;
      const double rise = points[j].y - points[i].y;
      pairs.slopes.push_back(rise / (points[j].x - points[i].x));
      pairs.score += (rise > 0) - (rise < 0);
    }
  }
  return pairs;
}

/// Standard deviation of S without a trend; ties are not corrected for, which errs to the careful side.
double deviation_of_score(std::size_t n) {
  const auto m = static_cast<double>(n);
  return std::sqrt(m * (m - 1) * (2 * m + 5) / 18);
}

/// Half of the distance between the slopes whose ranks bound the interval (Sen 1968), as one standard deviation.
double error_of(std::vector<double>& slopes, double deviation) {
  std::sort(slopes.begin(), slopes.end());
  const auto count = static_cast<double>(slopes.size());
  const auto rank = [&](double wanted) { return slopes[static_cast<std::size_t>(std::clamp(wanted, 0.0, count - 1))]; };
  const double low = rank(std::floor((count - kInterval * deviation) / 2));
  const double high = rank(std::ceil((count + kInterval * deviation) / 2));
  return (high - low) / (2 * kInterval);
}

double typical_offset(const std::vector<Point>& points, double slope) {
  std::vector<double> offsets;
  for (const Point& point : points) offsets.push_back(point.y - slope * point.x);
  return median_of(offsets);
}

Slope fit(std::vector<Point> points) {
  Slope out;
  out.used = points.size();
  points = thinned(points, kMost);
  if (points.size() < kFewest) return out;
  Pairs pairs = pairs_of(points);
  if (pairs.slopes.empty()) return out;
  const double deviation = deviation_of_score(points.size());
  // Continuity: S moves in steps of 2.
  const double z = (pairs.score - (pairs.score > 0) + (pairs.score < 0)) / deviation;
  out.per_step = median_of(pairs.slopes);
  out.error = error_of(pairs.slopes, deviation);
  out.rising = normal_below(z);
  out.falling = normal_below(-z);
  const double offset = typical_offset(points, out.per_step);
  out.at_start = offset + out.per_step * points.front().x;
  out.at_end = offset + out.per_step * points.back().x;
  return out;
}

/// Robust spread around the line.
double residual(const std::vector<Point>& points, const Slope& slope) {
  const double offset = slope.at_start - slope.per_step * points.front().x;
  std::vector<double> distances;
  for (const Point& point : points) distances.push_back(std::fabs(point.y - offset - slope.per_step * point.x));
  return kNormal * median_of(distances);
}

std::vector<Point> logs(std::span<const double> values, std::span<const double> at) {
  std::vector<Point> points = usable(values, at);
  std::erase_if(points, [](const Point& point) { return !(point.y > 0); });
  for (Point& point : points) point.y = std::log(point.y);
  return points;
}

/// 1: the points lie on the line; 0: the line explains nothing of how they are spread.
double linearity(const std::vector<Point>& points, const Slope& slope) {
  std::vector<double> y;
  for (const Point& point : points) y.push_back(point.y);
  const double spread = kNormal * mad(y);
  return spread > 0 ? std::clamp(1 - residual(points, slope) / spread, 0.0, 1.0) : 0;
}

Growth growth_of(const std::vector<Point>& points) {
  Growth out;
  const Slope slope = fit(points);
  out.used = slope.used;
  if (std::isnan(slope.per_step)) return out;
  out.factor = std::exp(slope.per_step);
  out.total = std::exp(slope.at_end - slope.at_start);
  out.growing = slope.rising;
  out.shrinking = slope.falling;
  out.linear = linearity(points, slope);
  return out;
}

}  // namespace

double median(std::span<const double> values) {
  std::vector<double> kept;
  std::copy_if(values.begin(), values.end(), std::back_inserter(kept), [](double v) { return std::isfinite(v); });
  return median_of(kept);
}

double mad(std::span<const double> values) {
  const double center = median(values);
  std::vector<double> distances;
  for (const double value : values)
    if (std::isfinite(value)) distances.push_back(std::fabs(value - center));
  return median_of(distances);
}

std::vector<double> block_medians(std::span<const double> values, std::size_t blocks) {
  std::vector<double> out;
  blocks = std::min(blocks, values.size());
  for (std::size_t block = 0; block < blocks; ++block) {
    const std::size_t begin = block * values.size() / blocks;
    const double middle = median(values.subspan(begin, (block + 1) * values.size() / blocks - begin));
    if (!std::isnan(middle)) out.push_back(middle);
  }
  return out;
}

Slope slope(std::span<const double> values, std::span<const double> at) { return fit(usable(values, at)); }

Growth growth(std::span<const double> values, std::span<const double> at) { return growth_of(logs(values, at)); }

Oscillation oscillation(std::span<const double> values) {
  Oscillation out;
  if (values.size() > kMost) values = values.last(kMost);
  std::vector<double> kept, sizes, steps;
  std::copy_if(values.begin(), values.end(), std::back_inserter(kept), [](double v) { return std::isfinite(v); });
  if (kept.size() < kFewest) return out;
  double turns = 0;
  for (std::size_t i = 0; i + 1 < kept.size(); ++i) {
    steps.push_back(kept[i + 1] - kept[i]);
    sizes.push_back(std::fabs(kept[i]));
    if (i > 0) turns += steps[i] * steps[i - 1] < 0;
  }
  const auto n = static_cast<double>(kept.size());
  out.flips = turns / (n - 2);
  out.confidence = normal_below((turns - 2 * (n - 2) / 3) / std::sqrt((16 * n - 29) / 90));
  for (double& step : steps) step = std::fabs(step);
  out.swings = growth(steps);
  const double level = median(sizes);
  out.amplitude = level > 0 ? median(steps) / level : kUnknown;
  return out;
}

LossTrend loss_trend(std::span<const double> losses, double tolerance) {
  LossTrend out;
  const std::vector<Point> all = usable(losses, {});
  out.used = all.size();
  const std::vector<Point> points = thinned(all, kSmoothed);
  const Slope line = fit(points);
  if (std::isnan(line.per_step)) return out;
  const double length = points.back().x - points.front().x;
  out.noise = residual(points, line);
  out.rising = line.rising;
  out.falling = line.falling;
  const double level = std::max(std::fabs(line.at_start), out.noise);
  if (!(level > 0)) {
    out.change = 0;
    out.flat = 1;  // 0 throughout
    return out;
  }
  out.change = (line.at_end - line.at_start) / level;
  const double error = std::max(line.error * length / level, 1e-12);
  out.flat = normal_below((tolerance - out.change) / error) - normal_below((-tolerance - out.change) / error);
  return out;
}

DepthFit depth_fit(std::span<const double> orders, std::span<const double> norms) {
  std::vector<Point> points = logs(norms, orders);
  std::erase_if(points, [](const Point& point) { return point.x < 0; });
  std::sort(points.begin(), points.end(), [](const Point& a, const Point& b) { return a.x < b.x; });
  std::vector<Point> layers;
  for (std::size_t begin = 0, end = 0; begin < points.size(); begin = end) {
    std::vector<double> same;
    for (; end < points.size() && points[end].x == points[begin].x; ++end) same.push_back(points[end].y);
    layers.push_back({static_cast<double>(layers.size()), median_of(same)});
  }
  DepthFit out;
  out.layers = layers.size();
  const Slope slope = fit(layers);
  if (std::isnan(slope.per_step)) return out;
  out.lambda = std::exp(slope.per_step);
  out.backward = 1 / out.lambda;
  out.first = std::exp(slope.at_start);
  out.last = std::exp(slope.at_end);
  const double direction = 2 * std::max(slope.rising, slope.falling) - 1;
  out.confidence = direction * linearity(layers, slope);
  return out;
}

}  // namespace firstfault::detect
