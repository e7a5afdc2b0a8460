// Norms, scaling and clamping of solid runs of numbers, by Highway. No LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace firstfault::guard {

enum class Number : std::uint8_t { fp32, fp64, fp16, bf16 };

constexpr std::size_t bytes_of(Number type) noexcept { return type == Number::fp64 ? 8 : type == Number::fp32 ? 4 : 2; }

// All of these: `n` elements at `data`, which needs no alignment beyond the type's; arithmetic in double, on the
// calling thread.

/// Sum of x^2. Not finite where an element is not; of finite fp32, fp16 and bf16 always finite.
double sum_of_squares(Number type, const void* data, std::size_t n) noexcept;
/// Sum of |x|; the same holds.
double sum_of_magnitudes(Number type, const void* data, std::size_t n) noexcept;
/// Largest |x|; 0 for none; NaN where there is one, else Inf where there is one.
double largest_magnitude(Number type, const void* data, std::size_t n) noexcept;
/// Sum of (|x| / unit)^p, p > 0, unit > 0 and finite.
double sum_of_powers(Number type, const void* data, std::size_t n, double unit, double p) noexcept;

/// x * factor in place, rounded once; 0 < factor <= 1.
void scale(Number type, void* data, std::size_t n, double factor) noexcept;

/// What a clamp by value did to a vector: enough for the angle between before and after.
struct Clamped {
  double before = 0;  ///< sum of (x / unit)^2
  double after = 0;
  double across = 0;  ///< sum of before * after: the inner product
  std::int64_t changed = 0;
};

/// To [-limit, limit] in place; limit >= 0.
void clamp(Number type, void* data, std::size_t n, double limit, double unit, Clamped& into) noexcept;

}  // namespace firstfault::guard
