// The kernels of norm_kernels.h, compiled by Highway once per instruction set and chosen at run time.
#include "firstfault/live/guard/norm_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "firstfault/live/guard/norm_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "firstfault/live/measure/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace firstfault::guard {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Doubles = hn::ScalableTag<double>;
using Floats = hn::Rebind<float, Doubles>;  // as many as there are doubles
using Words = hn::Rebind<std::uint32_t, Doubles>;
using Halves = hn::Rebind<std::uint16_t, Doubles>;
using Wide = hn::Vec<Doubles>;
using Narrow = hn::Vec<Floats>;

// load(): a vector of doubles from memory. store(): back, rounded to the nearest.
struct OfFp64 {
  using Format = measure::Fp64;
  using Element = double;
  static HWY_INLINE Wide load(const double* at) { return hn::LoadU(Doubles(), at); }
  static HWY_INLINE void store(Wide value, double* at) { hn::StoreU(value, Doubles(), at); }
};

struct OfFp32 {
  using Format = measure::Fp32;
  using Element = float;
  static HWY_INLINE Wide load(const float* at) { return hn::PromoteTo(Doubles(), hn::LoadU(Floats(), at)); }
  static HWY_INLINE void store(Wide value, float* at) { hn::StoreU(hn::DemoteTo(Floats(), value), Floats(), at); }
};

struct OfBf16 {
  using Format = measure::Bf16;
  using Element = std::uint16_t;
  static HWY_INLINE Wide load(const std::uint16_t* at) {
    const auto word = hn::PromoteTo(Words(), hn::LoadU(Halves(), at));
    return hn::PromoteTo(Doubles(), hn::BitCast(Floats(), hn::ShiftLeft<16>(word)));
  }
  static HWY_INLINE void store(Wide value, std::uint16_t* at) {
    const auto word = hn::BitCast(Words(), hn::DemoteTo(Floats(), value));
    const auto odd = hn::And(hn::ShiftRight<16>(word), hn::Set(Words(), 1u));
    const auto rounded = hn::Add(hn::Add(word, hn::Set(Words(), 0x7FFFu)), odd);
    hn::StoreU(hn::TruncateTo(Halves(), hn::ShiftRight<16>(rounded)), Halves(), at);
  }
};

// By integers: Highway's own conversions know neither Inf nor NaN where the processor has no F16C.
struct OfFp16 {
  using Format = measure::Fp16;
  using Element = std::uint16_t;
  static HWY_INLINE Wide load(const std::uint16_t* at) {
    const auto word = hn::PromoteTo(Words(), hn::LoadU(Halves(), at));
    const auto magnitude = hn::And(word, hn::Set(Words(), 0x7FFFu));
    const auto rebased = hn::Add(hn::ShiftLeft<13>(magnitude), hn::Set(Words(), 112u << 23));
    const auto is_bad = hn::Gt(magnitude, hn::Set(Words(), 0x7BFFu));
    const auto normal = hn::IfThenElse(is_bad, hn::Or(rebased, hn::Set(Words(), 0x7F80'0000u)), rebased);
    const hn::RebindToSigned<Words> di;
    const auto counted = hn::ConvertTo(Floats(), hn::BitCast(di, magnitude));  // subnormal: a multiple of 2^-24
    const auto subnormal = hn::Mul(counted, hn::Set(Floats(), 0x1p-24f));
    const auto is_small = hn::RebindMask(Floats(), hn::Lt(magnitude, hn::Set(Words(), 0x400u)));
    const auto sign = hn::ShiftLeft<16>(hn::And(word, hn::Set(Words(), 0x8000u)));
    const auto value = hn::IfThenElse(is_small, subnormal, hn::BitCast(Floats(), normal));
    return hn::PromoteTo(Doubles(), hn::Or(value, hn::BitCast(Floats(), sign)));
  }
  // For magnitudes within the format's range.
  static HWY_INLINE void store(Wide value, std::uint16_t* at) {
    const auto single = hn::DemoteTo(Floats(), value);
    const auto sign = hn::And(hn::ShiftRight<16>(hn::BitCast(Words(), single)), hn::Set(Words(), 0x8000u));
    const auto magnitude = hn::Abs(single);
    const auto word = hn::BitCast(Words(), magnitude);
    const auto odd = hn::And(hn::ShiftRight<13>(word), hn::Set(Words(), 1u));
    const auto bias = hn::Set(Words(), 0xFFFu - (112u << 23));
    const auto normal = hn::ShiftRight<13>(hn::Add(hn::Add(word, bias), odd));
    // Adding 0.5, whose last place is 2^-24, rounds as the format's subnormals do.
    const auto half = hn::Set(Floats(), 0.5f);
    const auto small = hn::Sub(hn::BitCast(Words(), hn::Add(magnitude, half)), hn::BitCast(Words(), half));
    const auto is_small = hn::Lt(word, hn::Set(Words(), 113u << 23));
    const auto bits = hn::Or(hn::IfThenElse(is_small, small, normal), sign);
    hn::StoreU(hn::TruncateTo(Halves(), bits), Halves(), at);
  }
};

template <class Of>
struct Tail {
  HWY_ALIGN typename Of::Element buffer[HWY_MAX_BYTES / sizeof(double)] = {};  // what is beyond `n` is 0
  Tail(const typename Of::Element* from, std::size_t n) { std::copy_n(from, n, buffer); }
};

// From here on, four places of a run are worked on at a time: one stream of loads does not fill the memory's bandwidth,
// and the processor's own prefetching stops at each page. 1.4 times as fast as one after another for what is in no
// L2.
constexpr std::size_t kStreamed = 16384;
constexpr std::size_t kStreams = 4;

template <std::size_t kAtOnce, class D>
HWY_INLINE std::size_t stream_length(D d, std::size_t n) {
  const std::size_t round = kAtOnce * hn::Lanes(d);
  return n < kStreamed ? 0 : n / kStreams / round * round;
}

// Several accumulators: the additions of one do not wait for those of another.
template <class Of, class Term>
HWY_INLINE double sum_of(const void* data, std::size_t n, Term&& term) {
  const Doubles d;
  const std::size_t lanes = hn::Lanes(d);
  const auto* at = static_cast<const typename Of::Element*>(data);
  auto sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0, sum4 = sum0, sum5 = sum0, sum6 = sum0, sum7 = sum0;
  const std::size_t stream = stream_length<2>(d, n);
  std::size_t i = 0;
  for (; i < stream; i += 2 * lanes) {
    sum0 = term(Of::load(at + i), sum0);
    sum1 = term(Of::load(at + i + stream), sum1);
    sum2 = term(Of::load(at + i + 2 * stream), sum2);
    sum3 = term(Of::load(at + i + 3 * stream), sum3);
    sum4 = term(Of::load(at + i + lanes), sum4);
    sum5 = term(Of::load(at + i + lanes + stream), sum5);
    sum6 = term(Of::load(at + i + lanes + 2 * stream), sum6);
    sum7 = term(Of::load(at + i + lanes + 3 * stream), sum7);
  }
  for (i = kStreams * stream; i + 4 * lanes <= n; i += 4 * lanes) {
    sum0 = term(Of::load(at + i), sum0);
    sum1 = term(Of::load(at + i + lanes), sum1);
    sum2 = term(Of::load(at + i + 2 * lanes), sum2);
    sum3 = term(Of::load(at + i + 3 * lanes), sum3);
  }
  for (; i + lanes <= n; i += lanes) sum0 = term(Of::load(at + i), sum0);
  if (i < n) sum1 = term(Of::load(Tail<Of>(at + i, n - i).buffer), sum1);
  const auto low = hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3));
  const auto high = hn::Add(hn::Add(sum4, sum5), hn::Add(sum6, sum7));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(low, high)));
}

template <class Of>
double squares_in(const void* data, std::size_t n) {
  return sum_of<Of>(data, n, [](Wide value, Wide sum) HWY_ATTR { return hn::MulAdd(value, value, sum); });
}

template <class Of>
double magnitudes_in(const void* data, std::size_t n) {
  return sum_of<Of>(data, n, [](Wide value, Wide sum) HWY_ATTR { return hn::Add(sum, hn::Abs(value)); });
}

template <class Of>
double powers_in(const void* data, std::size_t n, double unit, double p) {
  const auto units = hn::Set(Doubles(), unit);
  constexpr double kMostMultiplications = 32;
  if (p == std::floor(p) && p <= kMostMultiplications) {
    const auto times = static_cast<int>(p);
    return sum_of<Of>(data, n, [&](Wide value, Wide sum) HWY_ATTR {
      const auto part = hn::Div(hn::Abs(value), units);
      auto power = part;
      for (int i = 1; i < times; ++i) power = hn::Mul(power, part);
      return hn::Add(sum, power);
    });
  }
  HWY_ALIGN double parts[HWY_MAX_BYTES / sizeof(double)];
  return sum_of<Of>(data, n, [&](Wide value, Wide sum) HWY_ATTR {
    hn::Store(hn::Div(hn::Abs(value), units), Doubles(), parts);
    for (std::size_t i = 0; i < hn::Lanes(Doubles()); ++i) parts[i] = std::pow(parts[i], p);
    return hn::Add(sum, hn::Load(Doubles(), parts));
  });
}

// As integers the magnitudes are in order, with NaN above Inf.
template <class Of>
double largest_in(const void* data, std::size_t n) {
  using Word = typename Of::Format::Word;
  const hn::ScalableTag<Word> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto* words = static_cast<const Word*>(data);
  const auto mask = hn::Set(d, measure::kMagnitude<typename Of::Format>);
  auto most0 = hn::Zero(d), most1 = most0;
  std::size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    most0 = hn::Max(most0, hn::And(hn::LoadU(d, words + i), mask));
    most1 = hn::Max(most1, hn::And(hn::LoadU(d, words + i + lanes), mask));
  }
  HWY_ALIGN Word lane[HWY_MAX_BYTES / sizeof(Word)];
  hn::Store(hn::Max(most0, most1), d, lane);
  Word most = *std::max_element(lane, lane + lanes);
  for (; i < n; ++i) {
    const auto word = measure::word_at<typename Of::Format>(words, i);
    most = std::max(most, static_cast<Word>(word & measure::kMagnitude<typename Of::Format>));
  }
  typename Of::Element element;
  std::memcpy(&element, &most, sizeof(element));
  return hn::GetLane(Of::load(Tail<Of>(&element, 1).buffer));
}

template <class Of, class Change>
HWY_INLINE void change_in(void* data, std::size_t n, Change&& change) {
  const std::size_t lanes = hn::Lanes(Doubles());
  auto* at = static_cast<typename Of::Element*>(data);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) Of::store(change(Of::load(at + i)), at + i);
  if (i == n) return;
  Tail<Of> tail(at + i, n - i);
  Of::store(change(Of::load(tail.buffer)), tail.buffer);
  std::copy_n(tail.buffer, n - i, at + i);
}

template <class Of>
void scale_in(void* data, std::size_t n, double factor) {
  const auto factors = hn::Set(Doubles(), factor);
  change_in<Of>(data, n, [&](Wide value) HWY_ATTR { return hn::Mul(value, factors); });
}

// In float while the factor has all its digits there.
void scale_fp32(void* data, std::size_t n, double factor) {
  if (factor < std::numeric_limits<float>::min()) return scale_in<OfFp32>(data, n, factor);
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  auto* at = static_cast<float*>(data);
  const auto single = static_cast<float>(factor);
  const auto factors = hn::Set(d, single);
  const auto multiply = [&](float* place) HWY_ATTR { hn::StoreU(hn::Mul(hn::LoadU(d, place), factors), d, place); };
  const std::size_t stream = stream_length<1>(d, n);
  std::size_t i = 0;
  for (; i < stream; i += lanes) {
    multiply(at + i);
    multiply(at + i + stream);
    multiply(at + i + 2 * stream);
    multiply(at + i + 3 * stream);
  }
  for (i = kStreams * stream; i + lanes <= n; i += lanes) multiply(at + i);
  for (; i < n; ++i) at[i] *= single;
}

// The nearest that the format has, as it comes out of a store.
template <class Of>
double rounded(double value) {
  constexpr double kMost =
      Of::Format::kExponent == measure::Fp16::kExponent ? 65504 : std::numeric_limits<float>::max();
  if (sizeof(typename Of::Element) < sizeof(double)) value = std::min(value, kMost);
  typename Of::Element element[HWY_MAX_BYTES / sizeof(double)] = {};
  Of::store(hn::Set(Doubles(), value), element);
  return hn::GetLane(Of::load(element));
}

template <class Of>
void clamp_in(void* data, std::size_t n, double asked, double unit, Clamped& into) {
  const Doubles d;
  const double limit = rounded<Of>(asked);
  const auto most = hn::Set(d, limit), least = hn::Set(d, -limit), scaled = hn::Set(d, 1 / unit);
  auto before = hn::Zero(d), after = before, across = before;
  std::size_t changed = 0;
  change_in<Of>(data, n, [&](Wide value) HWY_ATTR {
    const auto kept = hn::Min(hn::Max(value, least), most);
    changed += hn::CountTrue(d, hn::Ne(value, kept));
    const auto from = hn::Mul(value, scaled), to = hn::Mul(kept, scaled);
    before = hn::MulAdd(from, from, before);
    after = hn::MulAdd(to, to, after);
    across = hn::MulAdd(from, to, across);
    return kept;
  });
  into.before += hn::GetLane(hn::SumOfLanes(d, before));
  into.after += hn::GetLane(hn::SumOfLanes(d, after));
  into.across += hn::GetLane(hn::SumOfLanes(d, across));
  into.changed += static_cast<std::int64_t>(changed);
}

template <class Use>
HWY_INLINE auto with_type(Number type, Use&& use) {
  switch (type) {
    case Number::fp64: return use(OfFp64());
    case Number::fp16: return use(OfFp16());
    case Number::bf16: return use(OfBf16());
    default: return use(OfFp32());
  }
}

double squares(Number type, const void* data, std::size_t n) {
  return with_type(type, [&](auto of) HWY_ATTR { return squares_in<decltype(of)>(data, n); });
}
double magnitudes(Number type, const void* data, std::size_t n) {
  return with_type(type, [&](auto of) HWY_ATTR { return magnitudes_in<decltype(of)>(data, n); });
}
double largest(Number type, const void* data, std::size_t n) {
  return with_type(type, [&](auto of) HWY_ATTR { return largest_in<decltype(of)>(data, n); });
}
double powers(Number type, const void* data, std::size_t n, double unit, double p) {
  return with_type(type, [&](auto of) HWY_ATTR { return powers_in<decltype(of)>(data, n, unit, p); });
}
void scale_any(Number type, void* data, std::size_t n, double factor) {
  if (type == Number::fp32) return scale_fp32(data, n, factor);
  with_type(type, [&](auto of) HWY_ATTR { scale_in<decltype(of)>(data, n, factor); });
}
void clamp_any(Number type, void* data, std::size_t n, double limit, double unit, Clamped& into) {
  with_type(type, [&](auto of) HWY_ATTR { clamp_in<decltype(of)>(data, n, limit, unit, into); });
}

}  // namespace HWY_NAMESPACE
}  // namespace firstfault::guard
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace firstfault::guard {

HWY_EXPORT(squares);
HWY_EXPORT(magnitudes);
HWY_EXPORT(largest);
HWY_EXPORT(powers);
HWY_EXPORT(scale_any);
HWY_EXPORT(clamp_any);

double sum_of_squares(Number type, const void* data, std::size_t n) noexcept {
  return HWY_DYNAMIC_DISPATCH(squares)(type, data, n);
}
double sum_of_magnitudes(Number type, const void* data, std::size_t n) noexcept {
  return HWY_DYNAMIC_DISPATCH(magnitudes)(type, data, n);
}
double largest_magnitude(Number type, const void* data, std::size_t n) noexcept {
  return HWY_DYNAMIC_DISPATCH(largest)(type, data, n);
}
double sum_of_powers(Number type, const void* data, std::size_t n, double unit, double p) noexcept {
  return HWY_DYNAMIC_DISPATCH(powers)(type, data, n, unit, p);
}
void scale(Number type, void* data, std::size_t n, double factor) noexcept {
  HWY_DYNAMIC_DISPATCH(scale_any)(type, data, n, factor);
}
void clamp(Number type, void* data, std::size_t n, double limit, double unit, Clamped& into) noexcept {
  HWY_DYNAMIC_DISPATCH(clamp_any)(type, data, n, limit, unit, into);
}

}  // namespace firstfault::guard
#endif  // HWY_ONCE
