// Batches with mean 0 and deviation 1, by the statistics of one of them.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "firstfault/live/guard/replay.h"

namespace firstfault::guard {

/// Of floating tensors with at least two rows, all finite: of vectors and matrices column by column, else of all
/// numbers together. Other tensors stay as they are, and so do columns that do not vary but for their mean.
class Standardiser {
 public:
  explicit Standardiser(const BatchTensors& batch);
  bool any() const noexcept;
  BatchTensors operator()(BatchTensors batch) const;

 private:
  std::vector<std::optional<std::pair<at::Tensor, at::Tensor>>> known_;  // mean, deviation; in float64
};

}  // namespace firstfault::guard
