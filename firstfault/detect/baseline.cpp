// The window twice: in order of time, to know which value leaves, and sorted, to read median and MAD off.
#include "firstfault/detect/baseline.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace firstfault::detect {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

/// Distances to `center`, ascending: those of the values below it and those above it are two lists in order already.
class Distances {
 public:
  Distances(const std::vector<float>& sorted, double center)
      : sorted_(sorted),
        center_(center),
        above_(std::lower_bound(sorted.begin(), sorted.end(), center)),
        below_(above_) {}

  double next() {
    const bool up = below_ == sorted_.begin() || (above_ != sorted_.end() && *above_ - center_ <= center_ - below_[-1]);
    return up ? *above_++ - center_ : center_ - *--below_;
  }

 private:
  const std::vector<float>& sorted_;
  double center_;
  std::vector<float>::const_iterator above_, below_;
};

/// std::lower_bound without a branch per level, which random values would make the processor guess wrong.
std::size_t place_in(const std::vector<float>& sorted, float value) {
  const float* base = sorted.data();
  std::size_t count = sorted.size();
  while (count > 1) {
    const std::size_t half = count / 2;
    base += base[half - 1] < value ? half : 0;
    count -= half;
  }
  const auto below = static_cast<std::size_t>(base - sorted.data());
  return below + (count == 1 && *base < value ? 1 : 0);
}

}  // namespace

void Window::add(float value) {
  if (ring_.size() < places_) {
    ring_.push_back(value);
    sorted_.insert(sorted_.begin() + static_cast<std::ptrdiff_t>(place_in(sorted_, value)), value);
    return;
  }
  const std::size_t from = place_in(sorted_, ring_[oldest_]);
  const std::size_t to = place_in(sorted_, value);
  float* at = sorted_.data();
  if (to > from) {
    std::memmove(at + from, at + from + 1, (to - from - 1) * sizeof(float));
    at[to - 1] = value;
  } else {
    std::memmove(at + to + 1, at + to, (from - to) * sizeof(float));
    at[to] = value;
  }
  ring_[oldest_] = value;
  if (++oldest_ == places_) oldest_ = 0;
}

double Window::median() const noexcept {
  if (sorted_.empty()) return kNone;
  const std::size_t half = sorted_.size() / 2;
  return sorted_.size() % 2 ? sorted_[half] : 0.5 * (double{sorted_[half - 1]} + sorted_[half]);
}

double Window::mad() const noexcept {
  if (sorted_.empty()) return kNone;
  Distances distances(sorted_, median());
  double last = 0, before = 0;
  for (std::size_t i = 0; i <= sorted_.size() / 2; ++i) {
    before = last;
    last = distances.next();
  }
  return sorted_.size() % 2 ? last : 0.5 * (before + last);
}

bool Baseline::add(double value) {
  if (!(value > 0) || !std::isfinite(value)) return false;
  logs_.add(static_cast<float>(std::log(value)));
  if (ready() && std::isnan(early_.median)) early_ = {static_cast<float>(logs_.median()), static_cast<float>(spread())};
  return true;
}

double Baseline::median() const noexcept { return std::exp(logs_.median()); }
double Baseline::early() const noexcept { return std::exp(double{early_.median}); }
double Baseline::floor() const noexcept { return std::fmin(median(), early()); }

double Baseline::spread() const noexcept { return size() == 0 ? kNone : std::max(kLeastSpread, kNormal * logs_.mad()); }

double Baseline::z(double value) const noexcept {
  if (size() == 0 || !(value > 0)) return kNone;
  const double log = std::log(value);
  return std::fmax((log - logs_.median()) / spread(), (log - early_.median) / early_.spread);
}

}  // namespace firstfault::detect
