#include "firstfault/live/watch/batch.h"

#include <algorithm>
#include <cmath>

#include "firstfault/live/measure/scan.h"
#include "firstfault/live/measure/statistics.h"

namespace firstfault::watch {
namespace {

constexpr float kStandsOut = 4;

// Largest over smallest rms of the columns of a matrix of features.
float column_ratio(const at::Tensor& tensor) {
  if (tensor.dim() != 2 || tensor.size(1) < 2 || tensor.size(0) < 4) return Health::kAbsent;
  measure::Grid grid;
  measure::read_grid(tensor, {.channel_dim = 1, .max_rows = 64, .max_channels = 256}, grid);
  double least = 0, most = 0;
  for (std::int64_t c = 0; c < grid.channels; ++c) {
    double squares = 0;
    for (std::int64_t r = 0; r < grid.rows; ++r) {
      const double value = grid.values[static_cast<std::size_t>(r * grid.channels + c)];
      if (!std::isnan(value)) squares += value * value;
    }
    if (squares == 0) continue;
    least = least == 0 ? squares : std::min(least, squares);
    most = std::max(most, squares);
  }
  return least > 0 ? static_cast<float>(std::sqrt(most / least)) : Health::kAbsent;
}

}  // namespace

Health batch_health(const at::Tensor& tensor, float usual) {
  Health health;
  const auto moments = measure::moments_of(tensor);
  if (moments.elements == 0) return health;
  // -Inf alone is a mask.
  const bool is_mask = moments.nonfinite > 0 && measure::scan(tensor) == kNegInf;
  health.nonfinite = is_mask ? 0 : moments.nonfinite;
  health.rms = static_cast<float>(moments.rms());
  health.absmax = static_cast<float>(moments.absmax);
  health.mean = static_cast<float>(moments.mean());
  health.zeros = static_cast<float>(static_cast<double>(moments.zeros) / static_cast<double>(moments.elements));
  health.columns = column_ratio(tensor);
  if (health.absmax > kStandsOut * usual) health.row = static_cast<std::int32_t>(measure::row_of_absmax(tensor));
  return health;
}

}  // namespace firstfault::watch
