// What one element of each dtype is: NaN, Inf or a number.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <c10/core/ScalarType.h>
#include <c10/util/bit_cast.h>

#include "firstfault/live/measure/kernels.h"

namespace firstfault::measure {

/// The lazy neg and conj bits: which parts stand for their negative.
struct Signs {
  bool real = false;
  bool imag = false;
};

inline NonFinite negated(NonFinite kind) noexcept {
  return kind == kPosInf ? kNegInf : kind == kNegInf ? kPosInf : kind;
}

// A NaN is never converted: converting a signalling one raises a floating-point exception flag.
template <class Format>
double number(typename Format::Word word) noexcept {
  if (kind_of<Format>(word) == kNaN) return std::numeric_limits<double>::quiet_NaN();
  if constexpr (std::is_same_v<Format, Fp64>) return c10::bit_cast<double>(word);
  if constexpr (std::is_same_v<Format, Fp32>) return c10::bit_cast<float>(word);
  if constexpr (std::is_same_v<Format, Fp16>) return c10::Half(word, c10::Half::from_bits());
  if constexpr (std::is_same_v<Format, Bf16>) return c10::BFloat16(word, c10::BFloat16::from_bits());
}

template <class F>
struct Real {
  using Format = F;
  static constexpr std::size_t kBytes = sizeof(typename Format::Word);
  static constexpr bool kHasKernels = true;
  static constexpr bool kComplex = false;

  static NonFinite kind(const std::byte* at, Signs signs) noexcept {
    const NonFinite kind = kind_of<Format>(word_at<Format>(at, 0));
    return signs.real ? negated(kind) : kind;
  }
  static double value(const std::byte* at) noexcept { return number<Format>(word_at<Format>(at, 0)); }
  static bool is_zero(const std::byte* at) noexcept { return (word_at<Format>(at, 0) & kMagnitude<Format>) == 0; }
  static bool any(const std::byte* at, std::size_t n) noexcept { return any_non_finite<Format>(at, n); }
  static std::uint8_t bits(const std::byte* at, std::size_t n) noexcept { return non_finite_bits<Format>(at, n); }
};

/// Counted once: NaN where any part is NaN, else Inf by its real part where that is Inf, else by the imaginary one.
template <class Format>
struct Complex {
  static constexpr std::size_t kBytes = 2 * sizeof(typename Format::Word);
  static constexpr bool kHasKernels = true;
  static constexpr bool kComplex = true;

  static NonFinite kind(const std::byte* at, Signs signs) noexcept {
    const NonFinite real = Real<Format>::kind(at, {signs.real});
    const NonFinite imag = Real<Format>::kind(at + kBytes / 2, {signs.imag});
    if (real == kNaN || imag == kNaN) return kNaN;
    return real != kFinite ? real : imag;
  }
  static double value(const std::byte* at) noexcept {
    const double real = Real<Format>::value(at), imag = Real<Format>::value(at + kBytes / 2);
    return std::isnan(real) || std::isnan(imag) ? std::numeric_limits<double>::quiet_NaN() : std::hypot(real, imag);
  }
  static bool is_zero(const std::byte* at) noexcept {
    return Real<Format>::is_zero(at) && Real<Format>::is_zero(at + kBytes / 2);
  }
  static bool any(const std::byte* at, std::size_t n) noexcept { return any_non_finite<Format>(at, 2 * n); }
  static std::uint8_t bits(const std::byte* at, std::size_t n) noexcept { return non_finite_bits<Format>(at, 2 * n); }
};

/// The 8-bit formats disagree on how NaN looks and on whether there is Inf; their conversion to float knows.
template <class Float8>
struct Small {
  static constexpr std::size_t kBytes = 1;
  static constexpr bool kHasKernels = false;
  static constexpr bool kComplex = false;

  static std::uint32_t word(const std::byte* at) noexcept {
    const float value = Float8(static_cast<std::uint8_t>(*at), Float8::from_bits());
    return c10::bit_cast<std::uint32_t>(value);
  }
  static NonFinite kind(const std::byte* at, Signs signs) noexcept {
    const NonFinite kind = kind_of<Fp32>(word(at));
    return signs.real ? negated(kind) : kind;
  }
  static double value(const std::byte* at) noexcept { return number<Fp32>(word(at)); }
  static bool is_zero(const std::byte* at) noexcept { return (word(at) & kMagnitude<Fp32>) == 0; }
  static std::uint8_t bits(const std::byte* at, std::size_t n) noexcept {
    std::uint8_t bits = kFinite;
    for (std::size_t i = 0; i < n; ++i) bits |= kind_of<Fp32>(word(at + i));
    return bits;
  }
};

/// use(Real<…>{} or Complex<…>{} or Small<…>{}) for a dtype that memory_of() lets through.
template <class Use>
decltype(auto) with_element(at::ScalarType type, Use&& use) {
  switch (type) {
    case at::kDouble: return use(Real<Fp64>{});
    case at::kHalf: return use(Real<Fp16>{});
    case at::kBFloat16: return use(Real<Bf16>{});
    case at::kComplexHalf: return use(Complex<Fp16>{});
    case at::kComplexFloat: return use(Complex<Fp32>{});
    case at::kComplexDouble: return use(Complex<Fp64>{});
    case at::kFloat8_e5m2: return use(Small<c10::Float8_e5m2>{});
    case at::kFloat8_e4m3fn: return use(Small<c10::Float8_e4m3fn>{});
    case at::kFloat8_e5m2fnuz: return use(Small<c10::Float8_e5m2fnuz>{});
    case at::kFloat8_e4m3fnuz: return use(Small<c10::Float8_e4m3fnuz>{});
    case at::kFloat8_e8m0fnu: return use(Small<c10::Float8_e8m0fnu>{});
    default: return use(Real<Fp32>{});
  }
}

}  // namespace firstfault::measure
