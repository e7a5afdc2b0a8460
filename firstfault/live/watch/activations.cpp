#include "firstfault/live/watch/activations.h"

#include <algorithm>
#include <cmath>

#include "firstfault/live/measure/scan.h"

namespace firstfault::watch {
namespace {

using intercept::Nonlinearity;
using measure::Grid;

constexpr std::int64_t kMaxElements = 4096;
constexpr std::int64_t kMaxChannels = 256;

float of_row(const Grid& grid, std::int64_t row, std::int64_t channel) {
  return grid.values[static_cast<std::size_t>(row * grid.channels + channel)];
}

bool is_flat(Nonlinearity family, float value, float low, float high) {
  switch (family) {
    case Nonlinearity::tanh: return std::abs(value) > kTanhFlat;
    case Nonlinearity::sigmoid: return value < kSigmoidFlat || value > 1 - kSigmoidFlat;
    case Nonlinearity::bounded: return value <= low || value >= high;
    default: return false;
  }
}

// hardtanh's and relu6's bounds are not among the outputs' traits: they are the extremes that many elements share.
float saturated(Nonlinearity family, const Grid& grid) {
  if (family == Nonlinearity::softmax) {
    if (!grid.every_channel || grid.channels < 2) return Health::kAbsent;
    std::int64_t flat = 0;
    for (std::int64_t r = 0; r < grid.rows; ++r) {
      const auto* row = grid.values.data() + r * grid.channels;
      flat += *std::max_element(row, row + grid.channels) > kSoftmaxFlat;
    }
    return static_cast<float>(flat) / static_cast<float>(grid.rows);
  }
  if (family == Nonlinearity::none || family == Nonlinearity::relu || family == Nonlinearity::smooth) {
    return Health::kAbsent;
  }
  const auto [low, high] = std::minmax_element(grid.values.begin(), grid.values.end());
  const auto flat = std::count_if(grid.values.begin(), grid.values.end(),
                                  [&](float value) { return is_flat(family, value, *low, *high); });
  return static_cast<float>(flat) / static_cast<float>(grid.values.size());
}

}  // namespace

std::int64_t channel_dim(const at::Tensor& tensor) { return tensor.dim() >= 4 ? 1 : -1; }

Health health_of(const Grid& grid) {
  Health health;
  health.nonfinite = 0;
  struct Channel {
    double sum = 0, squares = 0;
    std::int64_t count = 0;
  };
  std::vector<Channel> channels(static_cast<std::size_t>(grid.channels));
  float absmax = 0;
  std::int64_t zeros = 0;
  const float* value = grid.values.data();
  for (std::int64_t r = 0; r < grid.rows; ++r) {
    for (Channel& channel : channels) {
      const float one = *value++;
      if (std::isnan(one)) continue;
      zeros += one == 0;
      absmax = std::max(absmax, std::abs(one));
      channel.sum += one;
      channel.squares += static_cast<double>(one) * one;
      ++channel.count;
    }
  }
  Channel all;
  double between = 0;
  for (const Channel& channel : channels) {
    all.sum += channel.sum;
    all.squares += channel.squares;
    all.count += channel.count;
    if (channel.count < 2) continue;
    between += std::max(0.0, channel.squares - channel.sum * channel.sum / static_cast<double>(channel.count));
  }
  if (all.count == 0) return health;
  const auto n = static_cast<double>(all.count);
  health.rms = static_cast<float>(std::sqrt(all.squares / n));
  health.absmax = absmax;
  health.mean = static_cast<float>(all.sum / n);
  health.zeros = static_cast<float>(static_cast<double>(zeros) / n);
  if (grid.rows >= 4 && all.squares > 0) health.varies = static_cast<float>(std::sqrt(between / all.squares));
  return health;
}

float share_of_commonest(const Grid& grid) {
  if (grid.rows == 0 || grid.channels < 2) return Health::kAbsent;
  std::vector<std::int64_t> wins(static_cast<std::size_t>(grid.channels));
  for (std::int64_t r = 0; r < grid.rows; ++r) {
    const auto* row = grid.values.data() + r * grid.channels;
    ++wins[static_cast<std::size_t>(std::max_element(row, row + grid.channels) - row)];
  }
  return static_cast<float>(*std::max_element(wins.begin(), wins.end())) / static_cast<float>(grid.rows);
}

float Activations::dead(Channels& channels, const Grid& grid) const {
  if (channels.alive.size() != static_cast<std::size_t>(grid.channels)) {
    channels = {};
    channels.alive.assign(static_cast<std::size_t>(grid.channels), 0);
  }
  const auto now = ++channels.measurements;
  std::int64_t silent = 0;
  for (std::int64_t c = 0; c < grid.channels; ++c) {
    for (std::int64_t r = 0; r < grid.rows; ++r) {
      if (of_row(grid, r, c) == 0) continue;  // a NaN is no silence
      channels.alive[static_cast<std::size_t>(c)] = now;
      break;
    }
    silent += now - channels.alive[static_cast<std::size_t>(c)] >= kDeadWindow;
  }
  if (now < kDeadWindow) return Health::kAbsent;
  return static_cast<float>(silent) / static_cast<float>(grid.channels);
}

Health Activations::measure(std::int32_t site, Nonlinearity family, const at::Tensor& output,
                            std::int64_t softmax_dim) {
  const bool softmax = family == Nonlinearity::softmax;
  const auto dim = output.dim() == 0 ? -1 : softmax ? softmax_dim : channel_dim(output);
  Channels& channels = channels_[site];
  measure::GridShape shape{.channel_dim = dim, .max_channels = softmax ? 4 * kMaxChannels : kMaxChannels};
  const auto size = output.dim() == 0 ? 1 : output.size(dim);
  const auto taken = std::min(size, shape.max_channels);
  shape.max_rows = std::clamp<std::int64_t>(kMaxElements / std::max<std::int64_t>(taken, 1), 8, 256);
  shape.shift = channels.measurements * 7;
  measure::read_grid(output, shape, grid_);
  if (grid_.values.empty()) return {};
  Health health = health_of(grid_);
  health.saturated = saturated(family, grid_);
  if (family == Nonlinearity::relu) {
    health.dead = dead(channels, grid_);
  } else {
    ++channels.measurements;
  }
  if (std::any_of(grid_.values.begin(), grid_.values.end(), [](float v) { return std::isnan(v); })) {
    health.nonfinite = measure::scan_full(output).counts.total();
  }
  return health;
}

}  // namespace firstfault::watch
