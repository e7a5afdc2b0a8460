// What is usual for a quantity: median and MAD over its newest values.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace firstfault::detect {

/// 1.4826 * MAD estimates the standard deviation of normal noise (Rousseeuw & Croux, 1993).
inline constexpr double kNormal = 1.4826;

/// The newest values. Robust: up to half of them can be outliers. Memory: 4 bytes per place, taken as it fills; the
/// median is looked for when it is asked for, about half a microsecond for 64 places. Not thread-safe.
class Window {
 public:
  static constexpr std::size_t kMost = 256;

  explicit Window(std::size_t places) : places_(places < kMost ? places : kMost) {}

  void add(float value);  ///< finite
  std::size_t size() const noexcept { return ring_.size(); }
  std::span<const float> values() const noexcept { return ring_; }  ///< in no order
  /// The two values in the middle; one value twice where there is one. NaN while empty.
  std::pair<double, double> middle() const noexcept;
  double median() const noexcept;  ///< NaN while empty
  double mad() const noexcept;     ///< median of |value - median()|; NaN while empty

 private:
  std::size_t places_;
  std::size_t oldest_ = 0;  // once it is full
  std::vector<float> ring_;
};

/// Of a positive quantity, on a log scale: a factor of 10 is as far from 1e-6 to 1e-5 as from 1 to 10. Poison-proof:
/// what is not finite or not above 0 never enters, and the caller keeps out what it has flagged.
class Baseline {
 public:
  /// Values that it takes before ready(): from 16 on, the error of the MAD is about a quarter (1.17 / sqrt(n)).
  static constexpr std::size_t kEnough = 16;
  /// Least spread of the log, so that a steady quantity does not make a few per cent look like many sigma.
  static constexpr double kLeastSpread = 0.05;

  explicit Baseline(std::size_t places = 64) : values_(places < kEnough ? kEnough : places) {}

  /// False: not taken, since it is not finite or not above 0.
  bool add(double value);

  std::size_t size() const noexcept { return values_.size(); }
  bool ready() const noexcept { return size() >= kEnough; }

  /// exp(median of the log), the usual value; NaN while empty.
  double median() const noexcept { return median_; }
  /// median() when it first was ready(); NaN before. Growth that is too slow for the window shows against this one.
  double early() const noexcept { return early_; }
  /// The lower of the two: what an explosion is measured against. NaN while empty.
  double floor() const noexcept;

  /// 1.4826 * MAD of the log, at least kLeastSpread; NaN while empty.
  double spread() const noexcept;
  /// Robust z of log(value), the larger of that against the window and that against the early one. NaN while empty and
  /// for a value that is not above 0; +Inf for +Inf.
  double z(double value) const noexcept;

 private:
  Window values_;
  std::size_t unread_ = 0;  // values since median_ was renewed
  float median_ = std::numeric_limits<float>::quiet_NaN();
  float early_ = std::numeric_limits<float>::quiet_NaN();
  float early_spread_ = 1;
};

}  // namespace firstfault::detect
