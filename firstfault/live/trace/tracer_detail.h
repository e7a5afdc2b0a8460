// What the tracer's source files share and nobody else needs.
#pragma once

#include <string_view>

#include <c10/core/CPUAllocator.h>

#include "firstfault/live/measure/scan.h"
#include "firstfault/live/trace/tracer.h"

namespace torch::autograd {
struct Node;
}

namespace firstfault::trace {

/// Which of the open frames give an op its names.
struct Tracer::Context {
  Frame* around = nullptr;  ///< node or engine record of the backward, nullptr outside
  const OpTraits* judged;   ///< outermost op that is not composite
  const OpTraits* outer;    ///< outermost op
};

/// State of a thread within one observation.
struct ThreadNotes {
  std::uint64_t generation = 0;
  std::uint64_t names_generation = 0;
  intercept::PlacePredictor predictor;
  std::int32_t last_module = -1;
  std::uint64_t top_ops = 0;  ///< ops that the program called outside any other
  std::uint64_t top_ops_at_root = 0;
  bool at_root = false;  ///< the node that began last is one that backward() was called on
};
ThreadNotes& notes();

inline bool may_hold_bad_values(const at::Tensor& tensor) {
  return tensor.defined() && (tensor.is_floating_point() || tensor.is_complex()) && tensor.has_storage() &&
         tensor.is_cpu() && !tensor.is_nested();
}

inline bool covers_storage(const at::Tensor& tensor) {
  return static_cast<std::size_t>(tensor.numel()) * tensor.itemsize() >= tensor.storage().nbytes();
}

/// By LibTorch's own allocator. What is wrapped (from_numpy) may be written, and wrapped anew, by anybody.
inline bool owns_memory(const at::Tensor& tensor) {
  static const auto deleter = c10::GetCPUAllocator()->raw_deleter();
  return tensor.storage().data_ptr().get_deleter() == deleter;
}

inline std::uintptr_t identity_of(const at::Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.storage().unsafeGetStorageImpl());
}

/// Unknown where something was not finite.
Bounds as_bounds(const measure::Looked& looked);

/// True when the op reads this storage as an operand (not as an `out=`).
bool reads_storage(const intercept::Frame& frame, const c10::StorageImpl* storage);
/// The nearest open op around the current one whose kernel may write memory between its child ops.
bool is_nested();
/// Memory that some enclosing kernel allocated and wrote without an op of its own.
bool is_internal(const c10::StorageImpl* storage);

/// A tensor that an optimizer could hold: requires a gradient and was made by no op.
bool is_leaf_parameter(const at::Tensor& tensor);
/// The same, or a view of one.
bool is_parameter_view(const at::Tensor& tensor);
/// AOTAutograd wraps what it compiled into an autograd.Function of this name.
inline constexpr std::string_view kCompiledFunction = "CompiledFunction";

/// What the op gives, or the first of what it gives; nullptr: no tensor. In its end callback.
const at::Tensor* first_tensor(const intercept::Frame& frame, const at::RecordFunction& record);
/// The autograd node that made a tensor, read without side effects; nullptr: none. `mutates`: by an in-place op.
torch::autograd::Node* node_of(const at::Tensor& tensor, bool mutates);
/// The innermost node that is open on this thread runs code of the program's own: a custom autograd.Function's.
bool in_custom_node();
/// The op that is ending runs in a hook of the program's, which the engine calls before a node or after it.
bool in_hook(const intercept::Frame& frame);
std::string node_name(const char* record_name);

}  // namespace firstfault::trace
