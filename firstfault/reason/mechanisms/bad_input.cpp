// The value was there before any op was seen to make it: names the tensor that held it.
#include "firstfault/base/numbers.h"
#include "firstfault/reason/mechanisms/mechanism.h"
#include "firstfault/reason/mechanisms/reading.h"

namespace firstfault::reason {
namespace {

std::string quoted(const std::string& name) { return name.empty() ? "" : " '" + name + "'"; }

std::string holder(const OriginEvidence& evidence) {
  const std::string name = quoted(evidence.role_name);
  switch (evidence.role) {
    case TensorRole::parameter: return name.empty() ? "a parameter" : "parameter" + name;
    case TensorRole::buffer: return name.empty() ? "a buffer" : "buffer" + name;
    case TensorRole::gradient: return name.empty() ? "a gradient" : "the gradient of" + name;
    case TensorRole::batch: return "the batch" + (name.empty() ? "" : "," + name);
    default: return "a tensor from outside the traced code" + name;
  }
}

std::string sentence(const OriginEvidence& evidence) {
  std::string text = "the " + std::string(name_of(evidence.first)) + " was already in " + holder(evidence);
  if (!evidence.op.empty()) text += " when " + evidence.op + " read it";
  if (!evidence.index.empty()) text += ", at " + show_index(evidence.index);
  const std::int64_t all = elements(evidence.shape);
  if (all > 1 && evidence.output.total() > 0) {
    text += " (" + show_count(evidence.output.total()) + " of " + show_count(all) +
            (evidence.output.total() == 1 ? " elements is non-finite)" : " elements are non-finite)");
  }
  return text;
}

/// A constant of the program's own, with which missing values are marked.
std::optional<Verdict> written_as_constant(const OriginEvidence& evidence) {
  if (!one_of(judged(evidence), {"masked_fill", "fill", "full", "full_like", "new_full", "index_fill", "scatter",
                                 "constant_pad_nd", "index_put", "_index_put_impl", "where", "nan_to_num"})) {
    return std::nullopt;
  }
  for (const Operand& operand : evidence.operands) {
    if (!operand.is_scalar_argument || !operand.value || kind_of(*operand.value) != evidence.first) continue;
    return Verdict{"data_nonfinite",
                   std::string(dispatched_op(evidence)) + " wrote " + std::string(name_of(evidence.first)) +
                       ": its argument '" + operand.name + "' is " + show_number(*operand.value),
                   "keep such marks out of the arithmetic: fill with a number, and leave the elements out by a mask."};
  }
  return std::nullopt;
}

/// A single number in float16: what the program wrote there was finite, but for a float('inf').
bool is_constant_beyond_float16(const OriginEvidence& evidence) {
  const bool unnamed = evidence.role == TensorRole::batch || evidence.role == TensorRole::outside;
  return unnamed && evidence.dtype == "float16" && elements(evidence.shape) == 1 && evidence.first == kPosInf;
}

std::optional<Verdict> judge(const OriginEvidence& evidence) {
  if (is_constant_beyond_float16(evidence)) {
    return Verdict{"mixed_precision", "a number that the program stored in float16 is Inf there: the largest is 65504",
                   "keep such constants in float32, or below the largest float16."};
  }
  if (evidence.role == TensorRole::none && evidence.first == kNaN) return written_as_constant(evidence);
  if (evidence.assigned()) {
    return Verdict{"data_nonfinite",
                   "the program itself wrote " + std::string(name_of(evidence.first)) + " into a tensor (" +
                       evidence.op + " of a single number)",
                   "keep such marks out of the arithmetic: write a number, and leave the elements out by a mask."};
  }
  switch (evidence.role) {
    case TensorRole::parameter:
      return Verdict{"bad_init", sentence(evidence),
                     "check how this parameter was initialised or loaded, and what wrote it before the trace began."};
    case TensorRole::buffer:
      return Verdict{"data_nonfinite", sentence(evidence),
                     "check what wrote this buffer: a checkpoint, or statistics of an earlier bad batch."};
    case TensorRole::gradient:
      return Verdict{"data_nonfinite", sentence(evidence),
                     "check the code that set this gradient by hand, before or beside backward()."};
    case TensorRole::batch:
      return Verdict{"data_nonfinite", sentence(evidence),
                     "clean the data: drop, fill or mask non-finite values in the loader."};
    case TensorRole::outside:
      return Verdict{"data_nonfinite", sentence(evidence),
                     "check where this tensor was made: a loader, a file, numpy, or code before the trace began."};
    default: return std::nullopt;
  }
}

}  // namespace

namespace list {
extern const Mechanism bad_input;
const Mechanism bad_input{
    .name = "bad_input",
    .condition =
        "NaN or Inf already in the batch, a parameter, a buffer, a gradient, or a tensor from outside, or a number "
        "that the program wrote into a tensor",
    .cause =
        "data_nonfinite (batch, buffer, gradient, outside); bad_init (parameter); mixed_precision (a float16 constant)",
    .reading =
        "No op made the value: a tensor held it when an op first read it. The tensor is named, and so is the op.",
    .remedy = "Clean the data; check the loader, the checkpoint, the initialisation.",
    .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
