// What was read off the tensors around the op that made the first non-finite value. Facts only: `reason` judges.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "firstfault/events/counts.h"

namespace firstfault {

/// What an operand held when the op read it.
enum class OperandState : std::uint8_t {
  finite,        ///< every element finite
  intended_inf,  ///< only an Inf that somebody meant, such as a mask's -Inf
  bad,           ///< an unintended NaN or Inf: the op only handed it on
  unknown,       ///< not inspected (dtype, layout, device, or overwritten before it could be read)
};

/// One argument of the op, by its name in the op's schema ("self", "other", "mask", …).
struct Operand {
  std::string name;
  std::string dtype;                ///< "float32" …; for a scalar argument the type of the number, "float64"
  std::vector<std::int64_t> shape;  ///< empty for a 0-dim tensor and for a scalar argument
  bool is_scalar_argument = false;  ///< a number in the call, not a tensor
  bool was_overwritten = false;     ///< an in-place operand: the values below are from before the op
  OperandState state = OperandState::unknown;
  Counts counts;                      ///< non-finite elements of the whole operand
  std::optional<double> value;        ///< at the element that the first bad output element was computed from;
                                      ///< the magnitude of a complex one
  std::vector<std::int64_t> index;    ///< that element's index in the operand
  std::optional<double> min, max;     ///< of the finite elements
  std::optional<std::int64_t> zeros;  ///< how many elements are 0
  std::string source;                 ///< "parameter 'fc.weight'", "buffer 'bn.running_var'" or ""
};

/// The row (along the op's own dim) that holds the first bad output element, of a softmax-like op's first operand.
struct RowEvidence {
  std::int64_t dim = 0;
  std::int64_t length = 0;
  std::int64_t neg_inf = 0;
  std::int64_t nan = 0;
  std::vector<std::int64_t> index;  ///< of the row: the first bad element's index without `dim`
};

/// Who held a bad value before any op was seen to make it.
enum class TensorRole : std::uint8_t { none, parameter, buffer, gradient, batch, outside, unwritten, compiled };

struct OriginEvidence {
  std::string op;          ///< the op judged, autograd level: "aten::log"; in the backward the node, "SqrtBackward0"
  std::string inner_op;    ///< the dispatched op whose operands these are: "aten::div" inside "SqrtBackward0"
  std::string forward_op;  ///< backward only: the forward op that the node belongs to, "aten::sqrt"
  bool in_backward = false;
  std::string dtype;                ///< of the output
  std::vector<std::int64_t> shape;  ///< of the output
  Counts output;                    ///< non-finite elements of the output
  NonFinite first = kFinite;        ///< which one stands at `index`
  std::vector<std::int64_t> index;  ///< first bad element of the output, row-major
  std::vector<Operand> operands;
  std::optional<RowEvidence> row;
  TensorRole role = TensorRole::none;  ///< set when no op made the value: which tensor had it already
  std::string role_name;               ///< that tensor's name, where it has one: "fc.weight"

  /// A single number that the program wrote into a tensor: `x[11, 3] = nan`.
  bool assigned() const {
    return (role == TensorRole::batch || role == TensorRole::outside) && shape.empty() && op == "aten::copy_";
  }
};

}  // namespace firstfault
