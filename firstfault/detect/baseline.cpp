// The median is searched, not kept: most steps only write one value.
#include "firstfault/detect/baseline.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace firstfault::detect {
namespace {

constexpr float kNone = std::numeric_limits<float>::quiet_NaN();

using Scratch = std::array<float, Window::kMost>;

/// Reorders the first `size`.
std::pair<double, double> middle_of(Scratch& values, std::size_t size) {
  if (size == 0) return {kNone, kNone};
  float* const half = values.data() + size / 2;
  std::nth_element(values.data(), half, values.data() + size);
  return {size % 2 ? *half : *std::max_element(values.data(), half), *half};
}

double mean_of(const std::pair<double, double>& two) { return 0.5 * (two.first + two.second); }

}  // namespace

void Window::add(float value) {
  if (ring_.size() < places_) {
    ring_.push_back(value);
    return;
  }
  ring_[oldest_] = value;
  if (++oldest_ == places_) oldest_ = 0;
}

std::pair<double, double> Window::middle() const noexcept {
  Scratch copy;
  std::copy(ring_.begin(), ring_.end(), copy.begin());
  return middle_of(copy, ring_.size());
}

double Window::median() const noexcept { return mean_of(middle()); }

double Window::mad() const noexcept {
  const double center = median();
  Scratch distances;
  std::transform(ring_.begin(), ring_.end(), distances.begin(),
                 [&](float value) { return static_cast<float>(std::fabs(value - center)); });
  return mean_of(middle_of(distances, ring_.size()));
}

bool Baseline::add(double value) {
  const auto narrow = static_cast<float>(value);
  if (!(narrow > 0) || !std::isfinite(narrow)) return false;
  values_.add(narrow);
  const bool first_ready = ready() && std::isnan(early_);
  if (++unread_ * 4 < size() && !first_ready) return true;
  unread_ = 0;
  const auto [low, high] = values_.middle();
  median_ = static_cast<float>(std::sqrt(low * high));
  if (first_ready) {
    early_ = median_;
    early_spread_ = static_cast<float>(spread());
  }
  return true;
}

double Baseline::floor() const noexcept { return std::fmin(median_, early_); }

double Baseline::spread() const noexcept {
  if (size() == 0) return kNone;
  const double center = std::log(double{median_});
  Scratch distances;
  const auto values = values_.values();
  std::transform(values.begin(), values.end(), distances.begin(),
                 [&](float value) { return static_cast<float>(std::fabs(std::log(double{value}) - center)); });
  return std::max(kLeastSpread, kNormal * mean_of(middle_of(distances, values.size())));
}

double Baseline::z(double value) const noexcept {
  if (size() == 0 || !(value > 0)) return kNone;
  const double log = std::log(value);
  const double now = (log - std::log(double{median_})) / spread();
  return std::isnan(early_) ? now : std::fmax(now, (log - std::log(double{early_})) / early_spread_);
}

}  // namespace firstfault::detect
