// Bit-pattern tests for non-finite values on raw memory: no LibTorch, no floating-point arithmetic, so that neither a
// signalling NaN nor an Inf ever raises a floating-point exception flag of the program that is watched.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>
#include <type_traits>

#include "firstfault/events/counts.h"

namespace firstfault::measure {

// The IEEE-like formats: exponent all ones means NaN, or Inf where the fraction is 0.
struct Fp32 {
  using Word = std::uint32_t;
  static constexpr Word kExponent = 0x7F80'0000;
};
struct Fp64 {
  using Word = std::uint64_t;
  static constexpr Word kExponent = 0x7FF0'0000'0000'0000;
};
struct Fp16 {
  using Word = std::uint16_t;
  static constexpr Word kExponent = 0x7C00;
};
struct Bf16 {
  using Word = std::uint16_t;
  static constexpr Word kExponent = 0x7F80;
};

/// All bits but the sign.
template <class Format>
inline constexpr typename Format::Word kMagnitude = std::numeric_limits<typename Format::Word>::max() >> 1;

template <class Format>
constexpr NonFinite kind_of(typename Format::Word word) noexcept {
  const auto magnitude = static_cast<typename Format::Word>(word & kMagnitude<Format>);
  if (magnitude < Format::kExponent) return kFinite;
  if (magnitude > Format::kExponent) return kNaN;
  return word == magnitude ? kPosInf : kNegInf;
}

/// The word at `index`; `data` needs no alignment.
template <class Format>
typename Format::Word word_at(const void* data, std::size_t index) noexcept {
  typename Format::Word word;
  std::memcpy(&word, static_cast<const std::byte*>(data) + index * sizeof(word), sizeof(word));
  return word;
}

/// Signed integers in the order of the numbers (-0.0 below 0.0). Its own inverse. For finite words.
template <class Format>
constexpr std::make_signed_t<typename Format::Word> ordered(typename Format::Word word) noexcept {
  using Signed = std::make_signed_t<typename Format::Word>;
  const auto flip = static_cast<typename Format::Word>(word > kMagnitude<Format> ? kMagnitude<Format> : 0);
  return static_cast<Signed>(word ^ flip);
}

/// Of finite words, in the order of `ordered`; empty while min > max.
template <class Format>
struct WordRange {
  using Signed = std::make_signed_t<typename Format::Word>;
  Signed min = std::numeric_limits<Signed>::max();
  Signed max = std::numeric_limits<Signed>::min();
  std::int64_t zeros = 0;

  void add(typename Format::Word word) noexcept {
    min = std::min(min, ordered<Format>(word));
    max = std::max(max, ordered<Format>(word));
    zeros += (word & kMagnitude<Format>) == 0;
  }
};

/// The largest magnitude, as a word; where it is no finite number some words may not have been looked at.
template <class Format>
struct Magnitude {
  typename Format::Word largest = 0;
  bool signs = false;  ///< some number is negative, or -0

  bool finite() const noexcept { return largest < Format::kExponent; }
};

/// The most elements that one call of finite_range may be given.
inline constexpr std::size_t kMaxRangeElements = 2048;

namespace dispatched {
bool any_non_finite(Fp32, const void* data, std::size_t n) noexcept;
bool any_non_finite(Fp64, const void* data, std::size_t n) noexcept;
bool any_non_finite(Fp16, const void* data, std::size_t n) noexcept;
bool any_non_finite(Bf16, const void* data, std::size_t n) noexcept;
std::uint8_t non_finite_bits(Fp32, const void* data, std::size_t n) noexcept;
std::uint8_t non_finite_bits(Fp64, const void* data, std::size_t n) noexcept;
std::uint8_t non_finite_bits(Fp16, const void* data, std::size_t n) noexcept;
std::uint8_t non_finite_bits(Bf16, const void* data, std::size_t n) noexcept;
void magnitude(const void* data, std::size_t n, Magnitude<Fp32>& into) noexcept;
void finite_range(const void* data, std::size_t n, WordRange<Fp32>& range) noexcept;
void finite_range(const void* data, std::size_t n, WordRange<Fp64>& range) noexcept;
void finite_range(const void* data, std::size_t n, WordRange<Fp16>& range) noexcept;
void finite_range(const void* data, std::size_t n, WordRange<Bf16>& range) noexcept;
}  // namespace dispatched

/// Below this many elements the dispatched call costs more than a plain loop.
inline constexpr std::size_t kInlineBelow = 8;

/// Is any of `n` contiguous elements NaN or Inf? Stops within 16 KiB of the first.
template <class Format>
bool any_non_finite(const void* data, std::size_t n) noexcept {
  if (n >= kInlineBelow) return dispatched::any_non_finite(Format{}, data, n);
  for (std::size_t i = 0; i < n; ++i) {
    if (kind_of<Format>(word_at<Format>(data, i)) != kFinite) return true;
  }
  return false;
}

/// NonFinite bits of `n` contiguous elements. May stop once all three have been seen.
template <class Format>
std::uint8_t non_finite_bits(const void* data, std::size_t n) noexcept {
  if (n >= kInlineBelow) return dispatched::non_finite_bits(Format{}, data, n);
  std::uint8_t bits = kFinite;
  for (std::size_t i = 0; i < n; ++i) bits |= kind_of<Format>(word_at<Format>(data, i));
  return bits;
}

/// Adds `n` contiguous elements, all finite, to `range`; n <= kMaxRangeElements.
template <class Format>
void finite_range(const void* data, std::size_t n, WordRange<Format>& range) noexcept {
  if (n >= kInlineBelow) return dispatched::finite_range(data, n, range);
  for (std::size_t i = 0; i < n; ++i) range.add(word_at<Format>(data, i));
}

/// The instruction set that the kernels run on: "AVX2", "AVX3" …
std::string_view simd_target() noexcept;

}  // namespace firstfault::measure
