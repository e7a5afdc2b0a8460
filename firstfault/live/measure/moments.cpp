// The kernels of moments.h, compiled by Highway once per instruction set and chosen at run time.
#include "firstfault/live/measure/moments.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "firstfault/live/measure/moments.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "firstfault/live/measure/statistics.h"

HWY_BEFORE_NAMESPACE();
namespace firstfault::measure {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

inline void add_one(double value, Moments& into) {
  std::uint64_t word;
  std::memcpy(&word, &value, sizeof(word));
  constexpr std::uint64_t kExponent = 0x7FF0'0000'0000'0000;
  if ((word & kExponent) == kExponent) {
    ++into.nonfinite;
    return;
  }
  into.zeros += value == 0;
  into.sum += value;
  into.squares += value * value;
  into.absmax = std::max(into.absmax, std::abs(value));
}

inline void add_float(float value, Moments& into) {
  std::uint32_t word;
  std::memcpy(&word, &value, sizeof(word));
  constexpr std::uint32_t kExponent = 0x7F80'0000;
  if ((word & kExponent) == kExponent) {
    ++into.nonfinite;
  } else {
    add_one(value, into);
  }
}

#if HWY_TARGET == HWY_SCALAR
void moments_block_f32(const float* HWY_RESTRICT data, std::size_t n, Moments& into) {
  for (std::size_t i = 0; i < n; ++i) add_float(data[i], into);
}
#else
// Counts are kept per lane, as sums of the -1 that a mask is: a block is short enough for them not to wrap.
void moments_block_f32(const float* HWY_RESTRICT data, std::size_t n, Moments& into) {
  const hn::ScalableTag<float> df;
  const hn::RebindToUnsigned<decltype(df)> du;
  const hn::RebindToSigned<decltype(df)> di;
  const hn::Repartition<double, decltype(df)> dd;
  const hn::Half<decltype(df)> dh;
  const std::size_t lanes = hn::Lanes(df);
  const auto exponent = hn::Set(du, 0x7F80'0000u);
  auto sum0 = hn::Zero(dd), sum1 = sum0, squares0 = sum0, squares1 = sum0;
  auto absmax = hn::Zero(df);
  auto bad = hn::Zero(di), zeros = bad;
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto raw = hn::LoadU(df, data + i);
    const auto is_bad = hn::Eq(hn::And(hn::BitCast(du, raw), exponent), exponent);
    const auto bad_lanes = hn::VecFromMask(du, is_bad);
    const auto value = hn::BitCast(df, hn::AndNot(bad_lanes, hn::BitCast(du, raw)));
    bad = hn::Sub(bad, hn::BitCast(di, bad_lanes));
    zeros = hn::Sub(zeros, hn::BitCast(di, hn::VecFromMask(df, hn::Eq(value, hn::Zero(df)))));
    absmax = hn::Max(absmax, hn::Abs(value));
    const auto low = hn::PromoteTo(dd, hn::LowerHalf(dh, value));
    const auto high = hn::PromoteTo(dd, hn::UpperHalf(dh, value));
    sum0 = hn::Add(sum0, low);
    sum1 = hn::Add(sum1, high);
    squares0 = hn::MulAdd(low, low, squares0);
    squares1 = hn::MulAdd(high, high, squares1);
  }
  const auto bad_count = static_cast<std::int64_t>(hn::GetLane(hn::SumOfLanes(di, bad)));
  into.nonfinite += bad_count;
  into.zeros += hn::GetLane(hn::SumOfLanes(di, zeros)) - bad_count;
  into.sum += hn::GetLane(hn::SumOfLanes(dd, hn::Add(sum0, sum1)));
  into.squares += hn::GetLane(hn::SumOfLanes(dd, hn::Add(squares0, squares1)));
  into.absmax = std::max<double>(into.absmax, hn::GetLane(hn::MaxOfLanes(df, absmax)));
  for (; i < n; ++i) add_float(data[i], into);
}

#endif

void moments_f32(const float* HWY_RESTRICT data, std::size_t n, Moments& into) {
  constexpr std::size_t kBlock = 1 << 20;
  for (; n > kBlock; data += kBlock, n -= kBlock) moments_block_f32(data, kBlock, into);
  moments_block_f32(data, n, into);
}

void moments_f64(const double* HWY_RESTRICT data, std::size_t n, Moments& into) {
  for (std::size_t i = 0; i < n; ++i) add_one(data[i], into);
}

}  // namespace HWY_NAMESPACE
}  // namespace firstfault::measure
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace firstfault::measure {

HWY_EXPORT(moments_f32);
HWY_EXPORT(moments_f64);

void add_moments(const float* data, std::size_t n, Moments& into) {
  into.elements += static_cast<std::int64_t>(n);
  HWY_DYNAMIC_DISPATCH(moments_f32)(data, n, into);
}

void add_moments(const double* data, std::size_t n, Moments& into) {
  into.elements += static_cast<std::int64_t>(n);
  HWY_DYNAMIC_DISPATCH(moments_f64)(data, n, into);
}

}  // namespace firstfault::measure
#endif  // HWY_ONCE
