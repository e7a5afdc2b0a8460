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

#include "firstfault/live/measure/prefetch.h"

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
void moments_f32(const float* HWY_RESTRICT data, std::size_t n, Moments& into) {
  for (std::size_t i = 0; i < n; ++i) add_float(data[i], into);
}
#else
using Floats = hn::ScalableTag<float>;
using Words = hn::RebindToUnsigned<Floats>;
using Counts = hn::RebindToSigned<Floats>;
using Doubles = hn::Repartition<double, Floats>;

// A chunk is summed in float, 8 numbers to a lane, where its squares neither overflow nor vanish: that takes a quarter
// of the time, and the sums of many chunks are right to a part in 1e7. Its magnitudes are looked at first, as integers,
// so that no Inf or NaN meets an operation that raises a floating-point exception.
constexpr std::size_t kAtOnce = 4;
constexpr std::size_t kChunkVectors = 8 * kAtOnce;
constexpr std::uint32_t kLeastSquared = 0x2B8C'BCCC;  // 1e-12
constexpr std::uint32_t kMostSquared = 0x5368'D4A5;   // 1e12

HWY_INLINE hn::Vec<Doubles> widened(hn::Vec<Floats> value) {
  const Doubles dd;
  const hn::Half<Floats> dh;
  return hn::Add(hn::PromoteTo(dd, hn::LowerHalf(dh, value)), hn::PromoteTo(dd, hn::UpperHalf(dh, value)));
}

// What is not finite counts as nothing but itself.
void add_chunk_in_double(const float* HWY_RESTRICT data, std::size_t n, Moments& into) {
  const Floats df;
  const Words dw;
  const Doubles dd;
  const hn::Half<Floats> dh;
  const std::size_t lanes = hn::Lanes(df);
  const auto exponent = hn::Set(dw, 0x7F80'0000u);
  auto sum = hn::Zero(dd), squares = sum;
  auto absmax = hn::Zero(df);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto raw = hn::LoadU(df, data + i);
    const auto is_bad = hn::Eq(hn::And(hn::BitCast(dw, raw), exponent), exponent);
    const auto value = hn::IfThenZeroElse(hn::RebindMask(df, is_bad), raw);
    const auto bad = static_cast<std::int64_t>(hn::CountTrue(dw, is_bad));
    into.nonfinite += bad;
    into.zeros += static_cast<std::int64_t>(hn::CountTrue(df, hn::Eq(value, hn::Zero(df)))) - bad;
    absmax = hn::Max(absmax, hn::Abs(value));
    const auto low = hn::PromoteTo(dd, hn::LowerHalf(dh, value));
    const auto high = hn::PromoteTo(dd, hn::UpperHalf(dh, value));
    sum = hn::Add(sum, hn::Add(low, high));
    squares = hn::MulAdd(low, low, hn::MulAdd(high, high, squares));
  }
  into.sum += hn::GetLane(hn::SumOfLanes(dd, sum));
  into.squares += hn::GetLane(hn::SumOfLanes(dd, squares));
  into.absmax = std::max<double>(into.absmax, hn::GetLane(hn::MaxOfLanes(df, absmax)));
  for (; i < n; ++i) add_float(data[i], into);
}

// Short enough for a lane's count not to wrap.
void moments_run_f32(const float* HWY_RESTRICT data, std::size_t n, Moments& into) {
  const Floats df;
  const Words dw;
  const Counts di;
  const Doubles dd;
  const std::size_t lanes = hn::Lanes(df);
  const auto magnitude = hn::Set(dw, 0x7FFF'FFFFu);
  auto sum = hn::Zero(dd), squares = sum;
  auto zeros = hn::Zero(di);
  auto most = hn::Zero(dw);  // as integers, magnitudes are in order
  const auto look = [&](const float* at, auto& largest, auto& none) HWY_ATTR {
    const auto word = hn::And(hn::LoadU(dw, reinterpret_cast<const std::uint32_t*>(at)), magnitude);
    largest = hn::Max(largest, word);
    none = hn::Sub(none, hn::BitCast(di, hn::VecFromMask(dw, hn::Eq(word, hn::Zero(dw)))));
  };
  const auto add = [&](const float* at, auto& sums, auto& square) HWY_ATTR {
    const auto value = hn::LoadU(df, at);
    sums = hn::Add(sums, value);
    square = hn::MulAdd(value, value, square);
  };
  const std::size_t chunk = kChunkVectors * lanes;
  for (; n >= chunk; data += chunk, n -= chunk) {
    auto most0 = hn::Zero(dw), most1 = most0;
    auto none0 = hn::Zero(di), none1 = none0;
    for (std::size_t i = 0; i < chunk; i += 2 * lanes) {
      prefetch_behind(data + i, 2 * lanes);
      look(data + i, most0, none0);
      look(data + i + lanes, most1, none1);
    }
    most0 = hn::Max(most0, most1);
    const auto largest = hn::GetLane(hn::MaxOfLanes(dw, most0));
    if (largest > kMostSquared || (largest < kLeastSquared && largest > 0)) {
      add_chunk_in_double(data, chunk, into);
      continue;
    }
    auto sum0 = hn::Zero(df), sum1 = sum0, sum2 = sum0, sum3 = sum0;
    auto square0 = sum0, square1 = sum0, square2 = sum0, square3 = sum0;
    for (std::size_t i = 0; i < chunk; i += kAtOnce * lanes) {
      add(data + i, sum0, square0);
      add(data + i + lanes, sum1, square1);
      add(data + i + 2 * lanes, sum2, square2);
      add(data + i + 3 * lanes, sum3, square3);
    }
    sum = hn::Add(sum, widened(hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
    squares = hn::Add(squares, widened(hn::Add(hn::Add(square0, square1), hn::Add(square2, square3))));
    zeros = hn::Add(zeros, hn::Add(none0, none1));
    most = hn::Max(most, most0);
  }
  into.zeros += hn::GetLane(hn::SumOfLanes(di, zeros));
  into.sum += hn::GetLane(hn::SumOfLanes(dd, sum));
  into.squares += hn::GetLane(hn::SumOfLanes(dd, squares));
  into.absmax = std::max<double>(into.absmax, hn::GetLane(hn::BitCast(df, hn::MaxOfLanes(dw, most))));
  add_chunk_in_double(data, n, into);
}

void moments_f32(const float* HWY_RESTRICT data, std::size_t n, Moments& into) {
  constexpr std::size_t kRun = 1 << 20;
  for (; n > kRun; data += kRun, n -= kRun) moments_run_f32(data, kRun, into);
  moments_run_f32(data, n, into);
}
#endif

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
