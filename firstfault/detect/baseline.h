// What is usual for one positive quantity: median and MAD of its logarithm over the newest values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace firstfault::detect {

/// Robust: up to half of the window can be outliers. Poison-proof: what is not finite and above 0 never enters, and the
/// caller keeps out what it has flagged. Memory: 8 bytes per place of the window, taken as it fills; add() costs two
/// binary searches and two moves of at most 4 * window bytes, tens of nanoseconds. Not thread-safe.
class Baseline {
 public:
  /// Values that it takes before ready(); from 16 on, the error of the MAD is below a third (asymptotically 1.17 /
  /// sqrt(n)).
  static constexpr std::size_t kEnough = 16;
  /// 1.4826 * MAD estimates the standard deviation of normal noise (Rousseeuw & Croux 1993).
  static constexpr double kNormal = 1.4826;
  /// Least spread of the log: noise below 5 % never makes a factor of a few look like many sigma.
  static constexpr double kLeastSpread = 0.05;

  explicit Baseline(std::size_t window = 64) : window_(window < kEnough ? kEnough : window) {}

  /// False: not taken, since it is not finite or not above 0.
  bool add(double value);

  std::size_t size() const noexcept { return sorted_.size(); }
  bool ready() const noexcept { return size() >= kEnough; }

  /// exp(median of the log), the quantity's usual value; NaN while empty.
  double median() const noexcept;
  /// 1.4826 * MAD of the log, at least kLeastSpread; NaN while empty.
  double spread() const noexcept;
  /// (log(value) - median) / spread: robust z; NaN while empty or for a value that is not above 0. +Inf stays +Inf.
  double z(double value) const noexcept;
  /// median() when it first became ready(): growth too slow for the window shows against this one. NaN before.
  double early() const noexcept;
  /// The lower of median() and early(): what an explosion is measured against. NaN while empty.
  double floor() const noexcept;

 private:
  double log_median() const noexcept;

  std::size_t window_;
  std::size_t oldest_ = 0;     // in ring_, once it is full
  std::vector<float> ring_;    // logs in order of time
  std::vector<float> sorted_;  // the same, ascending
  float early_ = 0;            // log; valid once ready_once_
  bool ready_once_ = false;
};

}  // namespace firstfault::detect
