// Which sample an element belongs to: the batch axis, followed from the inputs of the model through the ops that keep
// it apart, and given up wherever it is not sure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "firstfault/live/intercept/frame.h"

namespace firstfault::trace {

/// How the batch lies in a storage: the element at offset o belongs to sample ((o - base) / stride) % size. A property
/// of the storage, so views, transposed and folded ones too, need no bookkeeping. size 0: not known.
struct BatchLayout {
  std::int64_t stride = 0;
  std::int64_t size = 0;
  std::int64_t base = 0;

  bool known() const noexcept { return size > 0; }
  bool operator==(const BatchLayout&) const = default;
};

/// The dim of a view that carries the batch, `block` neighbours belonging to one sample (heads folded into the batch).
struct BatchDim {
  std::int64_t dim = -1;
  std::int64_t block = 1;
  bool operator==(const BatchDim&) const = default;
};

/// Per input of an op: the dim that carries the batch, if known.
using BatchDims = c10::SmallVector<std::optional<BatchDim>, 6>;

/// nullopt: no single dim of the view carries the whole batch.
std::optional<BatchDim> batch_dim(const at::Tensor& view, const BatchLayout& layout);
/// The layout that `dim` means in the storage of `tensor`.
BatchLayout layout_of(const at::Tensor& tensor, const BatchDim& dim, std::int64_t batch_size);

/// Batch size that the first op with a parameter reads: dim 0 of a convolution's input, or of the rows of a matrix
/// product or lookup that has no second dim which could be the batch (time first). nullopt: not known, so no sample.
std::optional<std::int64_t> batch_size_read(const intercept::Frame& frame);
/// True for an op that says itself that the batch is not dim 0 (an RNN with batch_first off).
bool puts_time_first(const intercept::Frame& frame);

/// Layout of an op's output. Unknown for every op without a BatchRule, and where operands disagree.
BatchLayout infer_layout(const intercept::Frame& frame, const at::Tensor& output, const BatchDims& dims,
                         std::int64_t batch_size);

/// Sample of the element at `index`.
std::optional<std::int64_t> sample_at(const at::Tensor& tensor, const BatchLayout& layout,
                                      const std::vector<std::int64_t>& index);

}  // namespace firstfault::trace
