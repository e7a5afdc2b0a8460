// How many elements of a tensor are non-finite, and which way.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace firstfault {

/// Bits of one pass over a tensor; 0 means every element is finite.
enum NonFinite : std::uint8_t { kFinite = 0, kNaN = 1, kPosInf = 2, kNegInf = 4, kAnyInf = 6, kAnyBad = 7 };

struct Counts {
  std::int64_t nan = 0;
  std::int64_t pos_inf = 0;
  std::int64_t neg_inf = 0;

  std::int64_t total() const noexcept { return nan + pos_inf + neg_inf; }
  std::uint8_t bits() const noexcept {
    return static_cast<std::uint8_t>((nan ? kNaN : 0) | (pos_inf ? kPosInf : 0) | (neg_inf ? kNegInf : 0));
  }
  bool operator==(const Counts&) const = default;
};

/// "NaN", "-Inf and NaN" …: all of the bits; "" for none.
inline std::string names_of(std::uint8_t bits) {
  std::string text;
  const auto add = [&](const char* name) { text += (text.empty() ? "" : " and ") + std::string(name); };
  if (bits & kNegInf) add("-Inf");
  if (bits & kPosInf) add("+Inf");
  if (bits & kNaN) add("NaN");
  return text;
}

/// "NaN", "+Inf" or "-Inf" for one bit; "" for none.
constexpr std::string_view name_of(NonFinite bit) noexcept {
  switch (bit) {
    case kNaN: return "NaN";
    case kPosInf: return "+Inf";
    case kNegInf: return "-Inf";
    default: return "";
  }
}

}  // namespace firstfault
