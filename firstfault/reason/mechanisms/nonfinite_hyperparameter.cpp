// A number in the call itself is NaN or Inf: a learning rate, a weight decay, a loss weight.
#include <cmath>

#include "firstfault/base/numbers.h"
#include "firstfault/reason/mechanisms/mechanism.h"
#include "firstfault/reason/mechanisms/reading.h"

namespace firstfault::reason {
namespace {

/// Ops for which a non-finite argument is a fill value or a bound, written on purpose.
bool fills_or_bounds(std::string_view name) {
  return one_of(name,
                {"masked_fill", "fill",        "full",       "full_like",     "new_full",        "scalar_tensor",
                 "where",       "index_fill",  "scatter",    "fill_diagonal", "constant_pad_nd", "clamp",
                 "clamp_min",   "clamp_max",   "nan_to_num", "hardtanh",      "threshold",       "linalg_vector_norm",
                 "norm",        "linalg_norm", "cdist",      "_cdist_forward"});
}

std::optional<Verdict> judge(const OriginEvidence& evidence) {
  if (fills_or_bounds(judged(evidence))) return std::nullopt;
  for (const Operand& operand : evidence.operands) {
    const auto value = value_of(&operand);
    if (!operand.is_scalar_argument || !value || std::isfinite(*value)) continue;
    std::string because = std::string(dispatched_op(evidence)) + " was called with '" + operand.name +
                          "' = " + show_number(*value) + inside(evidence);
    const Operand* self = find(evidence, "self");
    if (self != nullptr && self != &operand && known_finite(self)) because += "; the tensor it worked on was finite";
    return Verdict{"hyperparameter", because,
                   "find where this number is computed: a learning-rate schedule (warm-up of 0 steps), a weight decay, "
                   "or a loss weight."};
  }
  return std::nullopt;
}

}  // namespace

namespace list {
extern const Mechanism nonfinite_hyperparameter;
const Mechanism nonfinite_hyperparameter{
    .name = "nonfinite_hyperparameter",
    .condition = "a number in the call is NaN or Inf: learning rate, beta, weight decay, loss weight",
    .cause = "hyperparameter",
    .reading =
        "A number in the call itself is NaN or Inf. Fill values, bounds and norm orders are left alone: there Inf "
        "is meant.",
    .remedy = "Find where the number is computed, such as a warm-up of 0 steps.",
    .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
