// The op (or tensor) where a non-finite value began, what became of it, and why.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "firstfault/events/evidence.h"

namespace firstfault {

/// `data`, `parameter` and `outside` name a tensor that was bad already; the other three an op that made the value.
enum class Phase : std::uint8_t { data, parameter, outside, forward, backward, optimizer };

constexpr std::string_view name_of(Phase phase) noexcept {
  constexpr std::string_view names[] = {"data", "parameter", "outside", "forward", "backward", "optimizer"};
  return names[static_cast<int>(phase)];
}

/// What became of the value. Only `fault` did harm.
enum class Outcome : std::uint8_t {
  fault,       ///< reached a sink: loss, gradient at the optimizer, parameter, optimizer state, buffer
  swallowed,   ///< a warning: arithmetic on the way to the loss made it finite again (x / Inf, exp(-Inf))
  deselected,  ///< a note: where, masked_fill, index, clamp, max … left it out
  unused,      ///< a note: nothing that counts ever read it
  intended,    ///< only in a Diagnosis: an Inf that is meant, such as a mask's -Inf
};

struct SourceFrame {
  std::string file;
  int line = 0;
  std::string function;
  bool operator==(const SourceFrame&) const = default;
};

/// One op on the way from the origin to the sink, or the tensor through which the value got into a later step.
struct PathStep {
  std::int64_t op_number = 0;  ///< counts recorded ops since the trace began
  std::string op;              ///< "aten::mul", or "parameter 'fc.weight'"
  std::string module;
  Phase phase = Phase::forward;
  std::string holds;                     ///< "-Inf", "NaN", "+Inf and NaN" …: what its output held
  std::string outer_op = {};             ///< the op that the program called, if another
  std::vector<std::int64_t> shape = {};  ///< of its output
  std::string dtype = {};
};

struct Origin {
  std::int64_t step = 0;       ///< counted within the trace, from 0
  std::int64_t op_number = 0;  ///< counts recorded ops since the trace began
  Phase phase = Phase::forward;
  std::string op;                      ///< autograd level: "aten::native_layer_norm"; in the backward "SqrtBackward0"
  std::string inner_op;                ///< the dispatched op inside it that first showed the value, if another
  std::string outer_op;                ///< the op that the program called, if another: "aten::layer_norm"
  std::string forward_op;              ///< backward only
  std::string module;                  ///< path of the module, "encoder.layers.0"; "" outside the model
  std::string after_module;            ///< where `module` is "": the last module that ran before it, "" if none
  std::string param;                   ///< parameter that the value sits in or was written to, "" if none
  std::string device;                  ///< "cpu"
  std::optional<std::int64_t> sample;  ///< row of the batch, only where the batch axis is known to be carried
  std::vector<SourceFrame> stack;      ///< innermost first; frames of the user's program
  OriginEvidence evidence;

  Outcome outcome = Outcome::unused;
  std::string sink;            ///< "loss", "gradient of 'fc.weight'", "parameter 'fc.weight'" …; "" if none
  std::vector<PathStep> path;  ///< from this op to the sink, both included
  std::int64_t merged = 1;     ///< origins of the same step, op, module and kind that this one stands for
  bool replayed = false;       ///< seen when a guard ran the step again, and not in the step itself

  // Filled by reason::explain; empty until then.
  std::string mechanism;  ///< "log_of_nonpositive", …; "" when none fits
  std::string cause;      ///< name from the vocabulary of causes: "op_domain", …
  std::string because;    ///< one sentence: why this op gives that from these operands
  std::string advice;     ///< one sentence: what to change
};

}  // namespace firstfault
