// A strided tensor's memory as plain numbers, and the orders in which to walk it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

namespace firstfault::measure {

/// What a tensor's storage holds for it. Valid while the tensor lives and keeps its shape.
struct Memory {
  const std::byte* data = nullptr;  ///< the first element; may be null where numel is 0
  at::ScalarType type = at::ScalarType::Undefined;
  at::IntArrayRef sizes, strides;  ///< in elements
  std::int64_t numel = 0;
  bool dense = false;    ///< the elements fill `numel` places from `data` on, in some order
  bool negated = false;  ///< the lazy neg bit: each element stands for its negative
  bool conjugated = false;
};

/// Empty where there is nothing to read: see can_scan(). Looks only: a copy-on-write storage stays shared.
std::optional<Memory> memory_of(const at::Tensor& tensor) noexcept;

struct Dim {
  std::int64_t size;
  std::int64_t stride;   ///< in elements of the memory
  std::int64_t logical;  ///< in row-major logical indices
};
using Dims = c10::SmallVector<Dim, 8>;

/// Row-major order; adjacent dims that are one run in memory are merged. Each element of an expanded tensor stands
/// for `repeats` logical elements, and appears at the first of them. Never without a dim.
struct LogicalOrder {
  Dims dims;
  std::int64_t repeats = 1;
};
LogicalOrder logical_order(const Memory& memory);

/// Copies the elements, raw, to `into`: `numel` of them, in the order of memory where dense, else row-major.
void copy_elements(const Memory& memory, std::byte* into);

/// Any order: runs of `length` elements without gaps, one at each place that `outer` leads to.
struct SolidRuns {
  std::int64_t length = 1;
  Dims outer;
};
SolidRuns solid_runs(const Memory& memory);

/// Calls visit(offset, logical) for each position of `dims`, the last dim fastest, until it returns false.
template <class Visit>
void for_each_position(c10::ArrayRef<Dim> dims, Visit&& visit) {
  c10::SmallVector<std::int64_t, 8> at(dims.size(), 0);
  std::int64_t offset = 0, logical = 0;
  while (visit(offset, logical)) {
    std::size_t d = dims.size();
    for (; d > 0; --d) {
      const Dim& dim = dims[d - 1];
      offset += dim.stride, logical += dim.logical;
      if (++at[d - 1] < dim.size) break;
      offset -= dim.stride * dim.size, logical -= dim.logical * dim.size;
      at[d - 1] = 0;
    }
    if (d == 0) return;
  }
}

}  // namespace firstfault::measure
