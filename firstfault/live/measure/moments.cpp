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

// Four pairs of accumulators: the additions of one do not wait for those of another.
void moments_f32(const float* HWY_RESTRICT data, std::size_t n, Moments& into) {
  const hn::ScalableTag<double> dd;
  const hn::Rebind<float, decltype(dd)> df;
  const hn::RebindToUnsigned<decltype(df)> du;
  const std::size_t lanes = hn::Lanes(dd);
  const auto exponent = hn::Set(du, 0x7F80'0000u);
  auto sum0 = hn::Zero(dd), sum1 = sum0, squares0 = sum0, squares1 = sum0;
  auto absmax = hn::Zero(df);
  std::size_t bad = 0, zeros = 0, i = 0;
  const auto add = [&](std::size_t at, auto& sum, auto& squares) HWY_ATTR {
    const auto raw = hn::LoadU(df, data + at);
    const auto is_bad = hn::MaskFromVec(
        hn::BitCast(df, hn::VecFromMask(du, hn::Eq(hn::And(hn::BitCast(du, raw), exponent), exponent))));
    const auto value = hn::IfThenZeroElse(is_bad, raw);
    bad += hn::CountTrue(df, is_bad);
    zeros += hn::CountTrue(df, hn::Eq(value, hn::Zero(df)));
    absmax = hn::Max(absmax, hn::Abs(value));
    const auto wide = hn::PromoteTo(dd, value);
    sum = hn::Add(sum, wide);
    squares = hn::MulAdd(wide, wide, squares);
  };
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    add(i, sum0, squares0);
    add(i + lanes, sum1, squares1);
  }
  into.nonfinite += static_cast<std::int64_t>(bad);
  into.zeros += static_cast<std::int64_t>(zeros - bad);
  into.sum += hn::GetLane(hn::SumOfLanes(dd, hn::Add(sum0, sum1)));
  into.squares += hn::GetLane(hn::SumOfLanes(dd, hn::Add(squares0, squares1)));
  into.absmax = std::max<double>(into.absmax, hn::GetLane(hn::MaxOfLanes(df, absmax)));
  for (; i < n; ++i) {
    std::uint32_t word;
    std::memcpy(&word, data + i, sizeof(word));
    if ((word & 0x7F80'0000u) == 0x7F80'0000u) {
      ++into.nonfinite;
    } else {
      add_one(data[i], into);
    }
  }
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
