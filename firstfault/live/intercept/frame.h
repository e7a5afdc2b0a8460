// The stack of records that are open on a thread: ops, autograd nodes, the engine's own brackets.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <c10/util/SmallVector.h>

#include "firstfault/live/intercept/op_traits.h"
#include "firstfault/live/intercept/place.h"

namespace firstfault::intercept {

/// A tensor argument, kept until the op ends. What a written argument held before the op is found at its start.
struct Input {
  at::Tensor tensor;  ///< of a sparse one its explicit values
  at::Tensor sparse;  ///< the sparse tensor itself; undefined for others
  std::int16_t argument = 0;
  std::int16_t item = -1;  ///< place in a list argument, -1: not a list
  bool floating = false;   ///< floating or complex, with a storage: may hold non-finite values
  bool written = false;
  bool looked_at = false;   ///< written arguments: `before` is known
  std::uint8_t before = 0;  ///< written arguments: slot state before the op
  std::int32_t before_node = -1;
  at::Tensor copy;  ///< written arguments of ops that a mechanism knows: the values before the op
};

struct ScalarArgument {
  std::int16_t argument = 0;
  bool is_integer = false;
  double value = 0;
};

struct Frame {
  enum class Type : std::uint8_t { op, node, engine };

  const at::RecordFunction* record = nullptr;
  const OpTraits* traits = nullptr;
  Type type = Type::op;
  bool transparent = false;          ///< reads functorch wrappers: the real ops are nested below it
  bool hidden = false;               ///< inside a kernel that is judged by its own outputs: nothing is looked at
  bool observed = false;             ///< its values are looked at (the phase is included, no cap was reached)
  std::uint64_t number = 0;          ///< of the record; later records have larger ones
  std::int64_t sequence = -1;        ///< node: sequence number; engine: that of the last node that ended in it
  std::uint64_t forward_thread = 0;  ///< likewise
  std::int32_t first_node = 0;       ///< end of the graph of bad values when the op began
  PlaceId place = kNowhere;          ///< outermost compute op of the forward only
  bool child_bad = false;            ///< a child op gave a bad value
  c10::SmallVector<Input, 6> inputs;
  c10::SmallVector<ScalarArgument, 6> scalars;

  bool is_compute() const noexcept { return type == Type::op && traits->kind == OpKind::compute; }
};

/// The op's own arguments (start callback only) and results. A boxed call, as TorchScript and functorch make it, shows
/// the interpreter's whole stack: the op's own values are the last ones.
c10::ArrayRef<const c10::IValue> arguments_of(const OpTraits& op, const at::RecordFunction& record);
c10::ArrayRef<c10::IValue> results_of(const OpTraits& op, const at::RecordFunction& record);

/// Frames are reused, so that a record costs no allocation once the thread has been as deep.
class FrameStack {
 public:
  int depth() const noexcept { return depth_; }
  bool in_backward() const noexcept { return backward_depth_ > 0; }
  Frame& operator[](int i) noexcept { return *frames_[i]; }

  Frame& push(const at::RecordFunction& record, const OpTraits& traits, Frame::Type type);
  /// The frame stays readable until the next push. nullptr: `record` was opened before observation began.
  Frame* pop(const at::RecordFunction& record);

  int backward_depth() const noexcept { return backward_depth_; }
  void clear();

 private:
  std::vector<std::unique_ptr<Frame>> frames_;
  int depth_ = 0;
  int backward_depth_ = 0;
};

}  // namespace firstfault::intercept
