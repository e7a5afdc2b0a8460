// addcdiv by 0: the sqrt(v) + eps of Adam and its relatives. An eps of 1e-8 is 0 in float16, whose smallest
// positive number is 2^-24 = 5.96e-8 (IEEE 754 binary16).
#include "firstfault/base/numbers.h"
#include "firstfault/reason/mechanisms/mechanism.h"
#include "firstfault/reason/mechanisms/reading.h"

namespace firstfault::reason {
namespace {

/// Optimizers write in place, where autograd has to be off; a forward or a loss makes a tensor.
bool in_place(const OriginEvidence& evidence) { return dispatched_op(evidence).ends_with('_'); }

/// The whole step in one kernel: of its division only the eps is an argument.
std::optional<Verdict> fused(const OriginEvidence& evidence) {
  const auto eps = value_of(find(evidence, "eps"));
  if (!one_of(judged(evidence), {"_fused_adam", "_fused_adamw", "_fused_adagrad"}) || eps.value_or(1) != 0)
    return std::nullopt;
  if (!all_finite(evidence)) return std::nullopt;
  return Verdict{"optimizer_state",
                 std::string(dispatched_op(evidence)) +
                     " divides by sqrt(v) + eps with an eps of 0: where no gradient has come yet this is 0",
                 "give the optimizer an eps above 0, such as 1e-8."};
}

std::optional<Verdict> judge(const OriginEvidence& evidence) {
  if (auto verdict = fused(evidence)) return verdict;
  if (evidence.in_backward || judged(evidence) != "addcdiv" || !in_place(evidence)) return std::nullopt;
  const Operand* denominator = find(evidence, "tensor2");
  const auto value = value_of(denominator);
  if (!value || *value != 0) return std::nullopt;
  std::string because = std::string(dispatched_op(evidence)) + " divides by 0: its " + holds(*denominator) +
                        zeros_note(*denominator) + "; in Adam this is sqrt(v) + eps";
  if (denominator->dtype == "float16") because += ", and an eps of 1e-8 rounds to 0 in float16";
  return Verdict{"optimizer_state", because,
                 "keep float32 master weights and optimizer state, or use an eps that is not 0 in this dtype "
                 "(1e-4 for float16)."};
}

}  // namespace

namespace list {
extern const Mechanism optimizer_denominator;
const Mechanism optimizer_denominator{
    .name = "optimizer_denominator",
    .condition = "addcdiv_ by 0: the optimizer's sqrt(v) + eps is 0 in this dtype; a fused step with an eps of 0",
    .cause = "optimizer_state",
    .reading = "The update of Adam divides by sqrt(v) + eps. An eps of 1e-8 is 0 in float16.",
    .remedy = "float32 master weights, or a larger eps.",
    .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
