// The kernels of kernels.h, compiled by Highway once per instruction set and chosen at run time.
#include "firstfault/live/measure/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "firstfault/live/measure/kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "firstfault/live/measure/prefetch.h"

HWY_BEFORE_NAMESPACE();
namespace firstfault::measure {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Divides into whole rounds of four vectors on every target.
constexpr std::size_t kBlockBytes = 16 * 1024;

// Its sign bit is set where the exponent is all ones: adding the exponent's lowest bit carries into the sign.
template <class Format, class D, class V>
HWY_INLINE V bad_sign(D d, V words) {
  constexpr auto exponent = Format::kExponent;
  constexpr auto lowest = static_cast<typename Format::Word>(exponent & (~exponent + 1));
  return hn::Add(hn::And(words, hn::Set(d, exponent)), hn::Set(d, lowest));
}

template <class D, class V>
HWY_INLINE bool any_sign(D d, V words) {
  const auto sign = hn::Set(d, static_cast<hn::TFromD<D>>(~(std::numeric_limits<hn::TFromD<D>>::max() >> 1)));
  return !hn::AllTrue(d, hn::Eq(hn::And(words, sign), hn::Zero(d)));
}

template <class Format>
HWY_INLINE bool any_in_tail(const typename Format::Word* data, std::size_t n) {
  std::uint8_t bits = kFinite;
  for (std::size_t i = 0; i < n; ++i) bits |= kind_of<Format>(word_at<Format>(data, i));
  return bits != kFinite;
}

template <class Format>
HWY_INLINE bool any_in_block(const typename Format::Word* HWY_RESTRICT data, std::size_t n) {
  const hn::ScalableTag<typename Format::Word> d;
  const std::size_t lanes = hn::Lanes(d);
  if (n < lanes) return any_in_tail<Format>(data, n);
  auto seen0 = hn::Zero(d);
  auto seen1 = seen0, seen2 = seen0, seen3 = seen0;
  std::size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    prefetch_behind(data + i, 4 * lanes);
    seen0 = hn::Or(seen0, bad_sign<Format>(d, hn::LoadU(d, data + i)));
    seen1 = hn::Or(seen1, bad_sign<Format>(d, hn::LoadU(d, data + i + lanes)));
    seen2 = hn::Or(seen2, bad_sign<Format>(d, hn::LoadU(d, data + i + 2 * lanes)));
    seen3 = hn::Or(seen3, bad_sign<Format>(d, hn::LoadU(d, data + i + 3 * lanes)));
  }
  for (; i + lanes <= n; i += lanes) seen0 = hn::Or(seen0, bad_sign<Format>(d, hn::LoadU(d, data + i)));
  if (i < n) seen1 = hn::Or(seen1, bad_sign<Format>(d, hn::LoadU(d, data + n - lanes)));  // overlaps: harmless
  return any_sign(d, hn::Or(hn::Or(seen0, seen1), hn::Or(seen2, seen3)));
}

template <class Format>
HWY_INLINE std::uint8_t bits_in_block(const typename Format::Word* HWY_RESTRICT data, std::size_t n) {
  using Word = typename Format::Word;
  const hn::ScalableTag<Word> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto magnitude = hn::Set(d, kMagnitude<Format>);
  const auto to_sign = hn::Set(d, static_cast<Word>(kMagnitude<Format> - Format::kExponent));  // carries for a NaN only
  const auto pos_inf = hn::Set(d, Format::kExponent);
  const auto neg_inf = hn::Set(d, static_cast<Word>(Format::kExponent | ~kMagnitude<Format>));
  auto nan = hn::Zero(d), pos = nan, neg = nan;
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto words = hn::LoadU(d, data + i);
    nan = hn::Or(nan, hn::Add(hn::And(words, magnitude), to_sign));
    pos = hn::Or(pos, hn::VecFromMask(d, hn::Eq(words, pos_inf)));
    neg = hn::Or(neg, hn::VecFromMask(d, hn::Eq(words, neg_inf)));
  }
  std::uint8_t bits = any_sign(d, nan) ? kNaN : kFinite;
  if (any_sign(d, pos)) bits |= kPosInf;
  if (any_sign(d, neg)) bits |= kNegInf;
  for (; i < n; ++i) bits |= kind_of<Format>(word_at<Format>(data, i));
  return bits;
}

template <class Format>
HWY_INLINE bool any_in(const void* data, std::size_t n) {
  using Word = typename Format::Word;
  constexpr std::size_t kBlock = kBlockBytes / sizeof(Word);
  const auto* words = static_cast<const Word*>(data);
  for (; n > kBlock; words += kBlock, n -= kBlock) {
    if (any_in_block<Format>(words, kBlock)) return true;
  }
  return any_in_block<Format>(words, n);
}

template <class Format>
HWY_INLINE std::uint8_t bits_in(const void* data, std::size_t n) {
  using Word = typename Format::Word;
  constexpr std::size_t kBlock = kBlockBytes / sizeof(Word);
  const auto* words = static_cast<const Word*>(data);
  std::uint8_t bits = kFinite;
  for (; n > kBlock; words += kBlock, n -= kBlock) {
    if (any_in_block<Format>(words, kBlock)) bits |= bits_in_block<Format>(words, kBlock);
    if (bits == kAnyBad) return bits;
  }
  if (any_in_block<Format>(words, n)) bits |= bits_in_block<Format>(words, n);
  return bits;
}

template <class Format>
HWY_INLINE void magnitude_in(const void* data, std::size_t n, Magnitude<Format>& into) {
  using Word = typename Format::Word;
  constexpr std::size_t kBlock = kBlockBytes / sizeof(Word);
  const hn::ScalableTag<Word> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto mask = hn::Set(d, kMagnitude<Format>);
  const auto* words = static_cast<const Word*>(data);
  auto signs = hn::Zero(d);
  while (n > 0 && into.finite()) {
    const std::size_t block = n < kBlock ? n : kBlock;
    auto most0 = hn::Zero(d), most1 = most0, most2 = most0, most3 = most0;
    std::size_t i = 0;
    for (; i + 4 * lanes <= block; i += 4 * lanes) {
      prefetch_behind(words + i, 4 * lanes);
      const auto one = hn::LoadU(d, words + i), two = hn::LoadU(d, words + i + lanes);
      const auto three = hn::LoadU(d, words + i + 2 * lanes), four = hn::LoadU(d, words + i + 3 * lanes);
      most0 = hn::Max(most0, hn::And(one, mask));
      most1 = hn::Max(most1, hn::And(two, mask));
      most2 = hn::Max(most2, hn::And(three, mask));
      most3 = hn::Max(most3, hn::And(four, mask));
      signs = hn::Or(signs, hn::Or(hn::Or(one, two), hn::Or(three, four)));
    }
    Word largest = hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(most0, most1), hn::Max(most2, most3))));
    for (; i < block; ++i) {
      const Word word = word_at<Format>(words, i);
      largest = std::max(largest, static_cast<Word>(word & kMagnitude<Format>));
      into.signs = into.signs || word > kMagnitude<Format>;
    }
    into.largest = std::max(into.largest, largest);
    words += block, n -= block;
  }
  into.signs = into.signs || any_sign(d, signs);
}

// kMaxRangeElements keeps the zero counters of 16-bit lanes from wrapping.
template <class Format>
HWY_INLINE void range_in(const void* data, std::size_t n, WordRange<Format>& range) {
  using Word = typename Format::Word;
  using Signed = typename WordRange<Format>::Signed;
  const hn::ScalableTag<Word> d;
  const hn::ScalableTag<Signed> ds;
  const std::size_t lanes = hn::Lanes(d);
  const auto magnitude = hn::Set(d, kMagnitude<Format>);
  auto min = hn::Set(ds, range.min), max = hn::Set(ds, range.max);
  auto zeros = hn::Zero(d);
  const auto* words = static_cast<const Word*>(data);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto word = hn::LoadU(d, words + i);
    const auto sign = hn::BitCast(d, hn::BroadcastSignBit(hn::BitCast(ds, word)));
    const auto key = hn::BitCast(ds, hn::Xor(word, hn::And(sign, magnitude)));
    min = hn::Min(min, key);
    max = hn::Max(max, key);
    zeros = hn::Sub(zeros, hn::VecFromMask(d, hn::Eq(hn::And(word, magnitude), hn::Zero(d))));
  }
  HWY_ALIGN Signed low[HWY_MAX_BYTES / sizeof(Word)], high[HWY_MAX_BYTES / sizeof(Word)];
  HWY_ALIGN Word count[HWY_MAX_BYTES / sizeof(Word)];
  hn::Store(min, ds, low);
  hn::Store(max, ds, high);
  hn::Store(zeros, d, count);
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    range.min = std::min(range.min, low[lane]);
    range.max = std::max(range.max, high[lane]);
    range.zeros += static_cast<std::int64_t>(count[lane]);
  }
  for (; i < n; ++i) range.add(word_at<Format>(words, i));
}

bool any_fp32(const void* data, std::size_t n) { return any_in<Fp32>(data, n); }
bool any_fp64(const void* data, std::size_t n) { return any_in<Fp64>(data, n); }
bool any_fp16(const void* data, std::size_t n) { return any_in<Fp16>(data, n); }
bool any_bf16(const void* data, std::size_t n) { return any_in<Bf16>(data, n); }
std::uint8_t bits_fp32(const void* data, std::size_t n) { return bits_in<Fp32>(data, n); }
std::uint8_t bits_fp64(const void* data, std::size_t n) { return bits_in<Fp64>(data, n); }
std::uint8_t bits_fp16(const void* data, std::size_t n) { return bits_in<Fp16>(data, n); }
std::uint8_t bits_bf16(const void* data, std::size_t n) { return bits_in<Bf16>(data, n); }
void magnitude_fp32(const void* data, std::size_t n, Magnitude<Fp32>& into) { magnitude_in(data, n, into); }
void range_fp32(const void* data, std::size_t n, WordRange<Fp32>& range) { range_in(data, n, range); }
void range_fp64(const void* data, std::size_t n, WordRange<Fp64>& range) { range_in(data, n, range); }
void range_fp16(const void* data, std::size_t n, WordRange<Fp16>& range) { range_in(data, n, range); }
void range_bf16(const void* data, std::size_t n, WordRange<Bf16>& range) { range_in(data, n, range); }
const char* name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace firstfault::measure
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace firstfault::measure {

HWY_EXPORT(any_fp32);
HWY_EXPORT(any_fp64);
HWY_EXPORT(any_fp16);
HWY_EXPORT(any_bf16);
HWY_EXPORT(bits_fp32);
HWY_EXPORT(bits_fp64);
HWY_EXPORT(bits_fp16);
HWY_EXPORT(bits_bf16);
HWY_EXPORT(magnitude_fp32);
HWY_EXPORT(range_fp32);
HWY_EXPORT(range_fp64);
HWY_EXPORT(range_fp16);
HWY_EXPORT(range_bf16);
HWY_EXPORT(name);

namespace dispatched {

bool any_non_finite(Fp32, const void* data, std::size_t n) noexcept { return HWY_DYNAMIC_DISPATCH(any_fp32)(data, n); }
bool any_non_finite(Fp64, const void* data, std::size_t n) noexcept { return HWY_DYNAMIC_DISPATCH(any_fp64)(data, n); }
bool any_non_finite(Fp16, const void* data, std::size_t n) noexcept { return HWY_DYNAMIC_DISPATCH(any_fp16)(data, n); }
bool any_non_finite(Bf16, const void* data, std::size_t n) noexcept { return HWY_DYNAMIC_DISPATCH(any_bf16)(data, n); }

std::uint8_t non_finite_bits(Fp32, const void* data, std::size_t n) noexcept {
  return HWY_DYNAMIC_DISPATCH(bits_fp32)(data, n);
}
std::uint8_t non_finite_bits(Fp64, const void* data, std::size_t n) noexcept {
  return HWY_DYNAMIC_DISPATCH(bits_fp64)(data, n);
}
std::uint8_t non_finite_bits(Fp16, const void* data, std::size_t n) noexcept {
  return HWY_DYNAMIC_DISPATCH(bits_fp16)(data, n);
}
std::uint8_t non_finite_bits(Bf16, const void* data, std::size_t n) noexcept {
  return HWY_DYNAMIC_DISPATCH(bits_bf16)(data, n);
}

void magnitude(const void* data, std::size_t n, Magnitude<Fp32>& into) noexcept {
  HWY_DYNAMIC_DISPATCH(magnitude_fp32)(data, n, into);
}

void finite_range(const void* data, std::size_t n, WordRange<Fp32>& range) noexcept {
  HWY_DYNAMIC_DISPATCH(range_fp32)(data, n, range);
}
void finite_range(const void* data, std::size_t n, WordRange<Fp64>& range) noexcept {
  HWY_DYNAMIC_DISPATCH(range_fp64)(data, n, range);
}
void finite_range(const void* data, std::size_t n, WordRange<Fp16>& range) noexcept {
  HWY_DYNAMIC_DISPATCH(range_fp16)(data, n, range);
}
void finite_range(const void* data, std::size_t n, WordRange<Bf16>& range) noexcept {
  HWY_DYNAMIC_DISPATCH(range_bf16)(data, n, range);
}

}  // namespace dispatched

std::string_view simd_target() noexcept { return HWY_DYNAMIC_DISPATCH(name)(); }

}  // namespace firstfault::measure
#endif  // HWY_ONCE
