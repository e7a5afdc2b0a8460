// What the tracer's source files share and nobody else needs.
#pragma once

#include "firstfault/live/trace/tracer.h"

namespace firstfault::trace {

/// Which of the open frames give an op its names.
struct Tracer::Context {
  Frame* around = nullptr;  ///< node or engine record of the backward, nullptr outside
  const OpTraits* judged;   ///< outermost op that is not composite
  const OpTraits* outer;    ///< outermost op
  const Frame* outermost;   ///< its frame
};

/// State of a thread within one observation.
struct ThreadNotes {
  std::uint64_t generation = 0;
  std::uint64_t names_generation = 0;
  intercept::PlacePredictor predictor;
  std::int32_t last_module = -1;
  std::uint64_t top_ops = 0;  ///< ops that the program called outside any other
  std::uint64_t top_ops_at_root = 0;
};
ThreadNotes& notes();

inline bool may_hold_bad_values(const at::Tensor& tensor) {
  return tensor.defined() && (tensor.is_floating_point() || tensor.is_complex()) && tensor.has_storage() &&
         tensor.is_cpu();
}

inline std::uintptr_t identity_of(const at::Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.storage().unsafeGetStorageImpl());
}

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
std::string node_name(const char* record_name);

}  // namespace firstfault::trace
