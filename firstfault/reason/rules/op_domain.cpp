// An op was given what it has no finite answer for: log of 0, the derivative of sqrt at 0, a division by 0.
#include "firstfault/reason/mechanisms/reading.h"
#include "firstfault/reason/rules/observed.h"
#include "firstfault/reason/rules/rule.h"

namespace firstfault::reason {
namespace {

constexpr double kNoMechanism = 0.5;
constexpr double kDivisorKnown = 0.5;  ///< data_invalid and hyperparameter say where the 0 comes from

/// NaN out of finite operands, and no mechanism knows the op.
std::optional<Hypothesis> unknown_op(const Reading& reading) {
  const Origin* origin = reading.culprit();
  if (origin == nullptr || !origin->cause.empty() || origin->evidence.first != kNaN) return std::nullopt;
  if (!all_finite(origin->evidence)) return std::nullopt;
  Hypothesis result = reading.about_culprit(*origin, kNoMechanism);
  result.cause = "op_domain";
  result.advice = "look at the operands of this op in the step before the fault: one of them left the op's domain.";
  return result;
}

std::optional<Hypothesis> judge(const Reading& reading) {
  auto known = observed(reading, "op_domain");
  if (!known) return unknown_op(reading);
  if (divisor(*reading.culprit()) != Divisor::computed) known->confidence = kDivisorKnown;
  return known;
}

std::string condition() {
  return "the first non-finite value came from an op outside its domain (mechanisms log_of_nonpositive, "
         "sqrt_or_rsqrt_domain, derivative_at_boundary, where_hides_forward_only, division_by_zero, "
         "degenerate_decomposition), and neither loss, gradients nor parameters had grown before it";
}

}  // namespace

namespace list {
extern const Rule op_domain;
const Rule op_domain{.name = "op_domain",
                     .symptom = "loss or gradients turn NaN or Inf from one step to the next",
                     .condition = condition,
                     .evidence = "The operand values at the op that made the value, as its mechanism reads them.",
                     .advice = "Clamp or add an eps inside the op, or use the form that is stable there.",
                     .source = "IEEE 754; the domain of each function",
                     .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
