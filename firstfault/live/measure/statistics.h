// Numbers of a tensor that say how it is: moments over every element, and fixed samples.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

namespace firstfault::measure {

/// Over the finite elements; a complex element counts as two.
struct Moments {
  std::int64_t elements = 0;   ///< all of them
  std::int64_t nonfinite = 0;  ///< NaN or Inf
  std::int64_t zeros = 0;
  double sum = 0;
  double squares = 0;  ///< sum of squares in double: does not overflow for any float32 tensor
  double absmax = 0;

  std::int64_t finite() const noexcept { return elements - nonfinite; }
  double mean() const noexcept { return finite() > 0 ? sum / static_cast<double>(finite()) : 0; }
  double rms() const noexcept;
};

/// One pass on the calling thread, without an ATen op. Each element of an expanded tensor is read once. Nothing for
/// what scan() cannot look at. Any thread.
Moments moments_of(const at::Tensor& tensor);

/// As many elements as fit into `into`, at places that depend on the tensor's size alone, spread over its memory in
/// runs of eight; NaN for those that are not finite. Gives how many were written; 0 for what cannot be read.
std::size_t sample_into(const at::Tensor& tensor, std::span<float> into);

/// A grid of elements: `rows` places of all dims but `channel_dim`, `channels` places along it.
struct Grid {
  std::int64_t rows = 0;
  std::int64_t channels = 0;
  bool every_channel = false;  ///< nothing was left out along the channel dim
  std::vector<float> values;   ///< rows x channels, row-major; NaN for what is not finite
};

struct GridShape {
  std::int64_t channel_dim = -1;  ///< negative counts from the end
  std::int64_t max_rows = 64;
  std::int64_t max_channels = 256;
  std::int64_t shift = 0;  ///< moves the rows that are taken: pass the step, to see others each time
};

/// Real tensors only; an empty grid for what cannot be read.
void read_grid(const at::Tensor& tensor, const GridShape& shape, Grid& into);

/// Row-major index in dim 0 of the element with the largest magnitude; -1 where there is none.
std::int64_t row_of_absmax(const at::Tensor& tensor);

}  // namespace firstfault::measure
