// Walks the memory of a tensor; what is done to a solid run of it is in moments.cpp.
#include "firstfault/live/measure/statistics.h"

#include <algorithm>
#include <cmath>

#include "firstfault/live/measure/elements.h"
#include "firstfault/live/measure/memory.h"
#include "firstfault/live/measure/moments.h"

namespace firstfault::measure {
namespace {

constexpr float kNaN32 = std::numeric_limits<float>::quiet_NaN();

template <class Element>
float finite_or_nan(const std::byte* at) {
  const double value = Element::value(at);
  return std::isfinite(value) ? static_cast<float>(value) : kNaN32;
}

// Converted in blocks where there is no kernel of the type's own.
template <class Element>
void add_run(const std::byte* data, std::int64_t n, Moments& into) {
  constexpr std::int64_t kBlock = 1024;
  double block[kBlock];
  while (n > 0) {
    const auto count = std::min(n, kBlock);
    for (std::int64_t i = 0; i < count; ++i) block[i] = Element::value(data + i * Element::kBytes);
    add_moments(block, static_cast<std::size_t>(count), into);
    data += count * Element::kBytes;
    n -= count;
  }
}

void add_any_run(const Memory& memory, const std::byte* data, std::int64_t n, Moments& into) {
  const auto count = static_cast<std::size_t>(n);
  switch (memory.type) {
    case at::kFloat: return add_moments(reinterpret_cast<const float*>(data), count, into);
    case at::kDouble: return add_moments(reinterpret_cast<const double*>(data), count, into);
    case at::kComplexFloat: return add_moments(reinterpret_cast<const float*>(data), 2 * count, into);
    case at::kComplexDouble: return add_moments(reinterpret_cast<const double*>(data), 2 * count, into);
    default: break;
  }
  with_element(memory.type, [&](auto element) { add_run<decltype(element)>(data, n, into); });
}

float finite_or_nan(float value) { return std::isfinite(value) ? value : kNaN32; }

// The same places as below, for what most parameters are.
std::size_t sample_floats(const Memory& memory, std::span<float> into) {
  constexpr std::int64_t kRun = 8;
  const auto* data = reinterpret_cast<const float*>(memory.data);
  const auto room = static_cast<std::int64_t>(into.size());
  if (memory.numel <= room) {
    std::copy_n(data, memory.numel, into.data());
  } else {
    const auto runs = std::max<std::int64_t>(1, room / kRun);
    const auto stride = memory.numel / runs;
    for (std::int64_t run = 0; run < runs; ++run) {
      const auto length = run + 1 < runs ? kRun : room - (runs - 1) * kRun;
      std::copy_n(data + run * stride, std::min(length, kRun), into.data() + run * kRun);
    }
    into = into.first(static_cast<std::size_t>(runs * kRun));
  }
  const auto count = std::min(memory.numel, static_cast<std::int64_t>(into.size()));
  for (std::int64_t i = 0; i < count; ++i)
    into[static_cast<std::size_t>(i)] = finite_or_nan(into[static_cast<std::size_t>(i)]);
  return static_cast<std::size_t>(count);
}

std::int64_t offset_of(const Memory& memory, std::int64_t logical, std::int64_t without = -1) {
  std::int64_t offset = 0;
  for (auto d = static_cast<std::int64_t>(memory.sizes.size()); d-- > 0;) {
    if (d == without) continue;
    offset += logical % memory.sizes[d] * memory.strides[d];
    logical /= memory.sizes[d];
  }
  return offset;
}

}  // namespace

double Moments::rms() const noexcept { return finite() > 0 ? std::sqrt(squares / static_cast<double>(finite())) : 0; }

Moments moments_of(const at::Tensor& tensor) {
  Moments moments;
  const auto memory = memory_of(tensor);
  if (!memory || memory->numel == 0) return moments;
  const SolidRuns runs = solid_runs(*memory);
  const auto bytes = static_cast<std::int64_t>(c10::elementSize(memory->type));
  for_each_position(runs.outer, [&](std::int64_t offset, std::int64_t) {
    add_any_run(*memory, memory->data + offset * bytes, runs.length, moments);
    return true;
  });
  return moments;
}

std::size_t sample_into(const at::Tensor& tensor, std::span<float> into) {
  const auto memory = memory_of(tensor);
  if (!memory || memory->numel == 0 || into.empty()) return 0;
  constexpr std::int64_t kRun = 8;
  if (memory->type == at::kFloat && memory->dense) return sample_floats(*memory, into);
  const auto bytes = static_cast<std::int64_t>(c10::elementSize(memory->type));
  const auto wanted = std::min<std::int64_t>(memory->numel, static_cast<std::int64_t>(into.size()));
  const auto runs = std::max<std::int64_t>(1, wanted / kRun);
  return with_element(memory->type, [&](auto element) {
    using Element = decltype(element);
    std::int64_t written = 0;
    for (std::int64_t i = 0; i < wanted; ++i) {
      const bool all = wanted == memory->numel;
      const auto logical = all ? i : std::min(i / kRun, runs - 1) * (memory->numel / runs) + i % kRun;
      const auto offset = memory->dense ? logical : offset_of(*memory, logical);
      into[static_cast<std::size_t>(written++)] = finite_or_nan<Element>(memory->data + offset * bytes);
    }
    return static_cast<std::size_t>(written);
  });
}

void read_grid(const at::Tensor& tensor, const GridShape& shape, Grid& into) {
  into.rows = into.channels = 0;
  into.values.clear();
  const auto memory = memory_of(tensor);
  if (!memory || memory->numel == 0 || c10::isComplexType(memory->type)) return;
  const auto dims = static_cast<std::int64_t>(memory->sizes.size());
  const auto channel_dim = dims == 0 ? -1 : (shape.channel_dim + dims) % dims;
  const auto channels = dims == 0 ? 1 : memory->sizes[channel_dim];
  const auto channel_stride = dims == 0 ? 0 : memory->strides[channel_dim];
  const auto others = memory->numel / channels;
  into.rows = std::min(others, shape.max_rows);
  into.channels = std::min(channels, shape.max_channels);
  into.every_channel = into.channels == channels;
  into.values.resize(static_cast<std::size_t>(into.rows * into.channels));
  const auto bytes = static_cast<std::int64_t>(c10::elementSize(memory->type));
  with_element(memory->type, [&](auto element) {
    using Element = decltype(element);
    auto* out = into.values.data();
    for (std::int64_t r = 0; r < into.rows; ++r) {
      const auto other = (r * others / into.rows + shape.shift) % others;
      const auto base = offset_of(*memory, other, channel_dim);
      if (memory->type == at::kFloat && channel_stride == 1 && into.every_channel) {
        const auto* row = reinterpret_cast<const float*>(memory->data) + base;
        out = std::transform(row, row + into.channels, out, [](float value) { return finite_or_nan(value); });
        continue;
      }
      for (std::int64_t c = 0; c < into.channels; ++c) {
        const auto offset = base + c * channels / into.channels * channel_stride;
        *out++ = finite_or_nan<Element>(memory->data + offset * bytes);
      }
    }
  });
}

std::int64_t row_of_absmax(const at::Tensor& tensor) {
  const auto memory = memory_of(tensor);
  if (!memory || memory->numel == 0 || memory->sizes.empty()) return -1;
  const auto per_row = memory->numel / memory->sizes[0];
  const auto bytes = static_cast<std::int64_t>(c10::elementSize(memory->type));
  std::int64_t best = -1;
  double absmax = -1;
  with_element(memory->type, [&](auto element) {
    for (std::int64_t i = 0; i < memory->numel; ++i) {
      const double value = std::abs(decltype(element)::value(memory->data + offset_of(*memory, i) * bytes));
      if (!(value > absmax)) continue;
      absmax = value;
      best = i / per_row;
    }
  });
  return best;
}

}  // namespace firstfault::measure
