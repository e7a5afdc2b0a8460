// Gradients as memory: where their numbers lie, and what is done to all of them.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include <ATen/core/Tensor.h>

#include "firstfault/live/guard/norm_kernels.h"
#include "firstfault/live/measure/memory.h"

namespace firstfault::guard {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// A sum of squares below it may have lost terms that are too small for a double.
inline constexpr double kLeastSquares = 1e-280;

struct Gradient {
  std::int64_t index = -1;  ///< in the list that was given
  at::Tensor tensor;        ///< as it was given
  at::Tensor values;        ///< what holds its numbers: itself, or the values of a sparse one
  measure::Memory memory;   ///< of `values`; type Undefined where only ATen can reach them
  Number number = Number::fp32;
  bool complex = false;  ///< two numbers per element
  at::Tensor summed;     ///< of a sparse one whose indices repeat: a copy in which they do not; `values` are its

  bool in_memory() const noexcept { return memory.type != at::ScalarType::Undefined; }
};

/// Those that hold numbers: not undefined ones, empty ones, or those on the device "meta"; each tensor once.
/// `by_aten`: as if none could be reached in memory.
std::vector<Gradient> collect(at::TensorList gradients, bool by_aten);

/// Of the parameters, in their order; undefined where there is none.
std::vector<at::Tensor> gradients_of(at::TensorList parameters);

/// Fills in `memory`, `number` and `complex` from `values`.
void find_memory(Gradient& gradient);

/// The values that an in-place op of any kind may change; not a copy.
at::Tensor own_values(const Gradient& gradient);

/// visit(first number, how many) over the runs of a memory, each element once.
template <class Visit>
void for_each_run(const measure::Memory& memory, Visit&& visit) {
  const auto runs = measure::solid_runs(memory);
  const auto bytes = static_cast<std::int64_t>(c10::elementSize(memory.type));
  const auto length = static_cast<std::size_t>(runs.length) * (c10::isComplexType(memory.type) ? 2 : 1);
  auto* data = const_cast<std::byte*>(memory.data);  // for those who called make_writable() before
  measure::for_each_position(runs.outer, [&](std::int64_t offset, std::int64_t) {
    visit(data + offset * bytes, length);
    return true;
  });
}

/// Makes its memory its own where it shares it until a write, and tells autograd of the write to come.
void make_writable(Gradient& gradient);

/// The p-norm of each, p > 0 or infinity. Not finite where an element is not: exactly then. In memory only.
std::vector<double> norms_of(const std::vector<Gradient>& gradients, double p);

/// Norm of a vector whose parts have these norms. Finite for any that fit into a double together.
double norm_of_norms(const std::vector<double>& norms, double p);

/// Multiplies each by `factor`, 0 to 1. In memory or not.
void scale_all(std::vector<Gradient>& gradients, double factor);

/// Sets it to 0. By ATen, so that whoever watches the ops sees that what was not finite is gone.
void set_zero(Gradient& gradient);

}  // namespace firstfault::guard
