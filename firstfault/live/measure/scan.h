// One pass over a tensor: is anything non-finite, which way, how many, where first.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include <ATen/core/Tensor.h>

#include "firstfault/events/counts.h"

namespace firstfault::measure {

/// True where scan() can look: defined, strided, on the CPU with memory behind it, floating or complex.
/// Subclass wrappers, sparse, meta, nested, quantized and functorch tensors are not.
bool can_scan(const at::Tensor& tensor) noexcept;

/// NonFinite bits of all elements; 0 also for what cannot be scanned. Every dtype is classified by its bits, without
/// an ATen op: no callback sees it, no floating-point flag is raised. One early-out pass by Highway kernels when all
/// is finite (8-bit floats: a plain loop), on the calling thread. Reads each element of an expanded tensor once. Any
/// thread; allocates nothing up to 8 dims.
std::uint8_t scan(const at::Tensor& tensor);

/// The bits of scan(), and in the same pass how large the values are.
struct Looked {
  std::uint8_t bits = kFinite;
  double largest = std::numeric_limits<double>::infinity();  ///< magnitude; Inf: not known
  bool signs = true;                                         ///< some value may be negative, or -0
};

/// Sizes are known of finite dense float32 tensors.
Looked look(const at::Tensor& tensor);

struct FullScan {
  Counts counts;
  std::int64_t first = -1;  ///< row-major logical index of the first non-finite element; -1: none
  NonFinite first_kind = kFinite;
};

/// Counts over all logical elements; a complex one counts once, NaN before Inf. Slower than scan(): for tensors that
/// are known to be bad. Nothing for what cannot be scanned.
FullScan scan_full(const at::Tensor& tensor);

struct Range {
  std::optional<double> min, max;  ///< of the finite elements; none for complex tensors
  std::int64_t zeros = 0;
  FullScan bad;
};

/// For evidence; as doubles. Nothing for what cannot be scanned.
Range range_of(const at::Tensor& tensor);

/// The element at a row-major logical index as a double (magnitude for complex tensors); NaN where
/// there is none or it cannot be read.
double value_at(const at::Tensor& tensor, std::int64_t logical_index);

/// The same of an integer or bool tensor on the CPU: a count, a divisor.
std::optional<double> integer_at(const at::Tensor& tensor, std::int64_t logical_index);

/// The explicitly stored elements of a sparse tensor (COO, CSR, CSC, BSR, BSC) on the CPU, as they are: not coalesced,
/// no ATen op. Undefined for every other tensor.
at::Tensor explicit_values(const at::Tensor& tensor);

/// A copy of the values that shares nothing, made without an ATen op: no callback and no dispatch mode sees it. With
/// the tensor's own strides where it is dense, else contiguous; the lazy neg and conj bits must not be set. Undefined
/// for what cannot be scanned.
at::Tensor copy_of(const at::Tensor& tensor);

}  // namespace firstfault::measure
