// Asks the mechanisms in their order; where none fits, says what is known and no more.
#include "firstfault/reason/engine.h"

#include <algorithm>

#include "firstfault/base/numbers.h"
#include "firstfault/reason/mechanisms/mechanism.h"
#include "firstfault/reason/mechanisms/reading.h"

namespace firstfault::reason {
namespace {

bool any_in_state(const OriginEvidence& evidence, OperandState state) {
  return std::any_of(evidence.operands.begin(), evidence.operands.end(),
                     [&](const Operand& operand) { return !operand.is_scalar_argument && operand.state == state; });
}

std::string uninspected(const OriginEvidence& evidence) {
  std::string names;
  for (const Operand& operand : evidence.operands) {
    if (operand.is_scalar_argument || operand.state != OperandState::unknown) continue;
    names += (names.empty() ? "'" : ", '") + operand.name + "'";
  }
  return names;
}

/// Only what the evidence carries.
std::string what_is_known(const OriginEvidence& evidence) {
  const std::string kind(name_of(evidence.first));
  std::string text = (kind.empty() ? "a non-finite value" : kind) + " came out of " +
                     std::string(dispatched_op(evidence)) + inside(evidence);
  if (all_finite(evidence)) return text + " although all its operands were finite";
  if (any_in_state(evidence, OperandState::bad)) return text + "; an operand held NaN or Inf already";
  const std::string names = uninspected(evidence);
  if (!names.empty()) return text + "; not inspected: " + names;
  if (any_in_state(evidence, OperandState::intended_inf)) {
    return text +
           "; of its operands, only Inf that somebody meant (a mask, a fill) was non-finite, and this op "
           "carried it on";
  }
  return text;
}

bool nothing_known(const OriginEvidence& evidence) {
  return evidence.op.empty() && evidence.inner_op.empty() && evidence.role == TensorRole::none;
}

/// The optimizer computes with its own state: a square root or a division that fails there is not the model's.
void take_for_state(const Origin& origin, Verdict& verdict) {
  if (origin.phase != Phase::optimizer || verdict.cause != "op_domain") return;
  verdict.cause = "optimizer_state";
  verdict.advice =
      "look at the optimizer's hyperparameters: an eps that is 0 in this dtype, or a beta that is not below 1.";
}

void set(Origin& origin, std::string_view mechanism, Verdict verdict) {
  take_for_state(origin, verdict);
  origin.mechanism = mechanism;
  origin.cause = std::move(verdict.cause);
  origin.because = std::move(verdict.because);
  origin.advice = std::move(verdict.advice);
}

}  // namespace

void explain(Origin& origin) {
  if (origin.outcome == Outcome::intended) {
    return set(origin, "",
               {"", "an Inf that is meant, such as a mask's: it was written as a constant, not computed", ""});
  }
  for (const Mechanism& mechanism : mechanisms()) {
    if (auto verdict = mechanism.judge(origin.evidence)) return set(origin, mechanism.name, std::move(*verdict));
  }
  set(origin, "", {"", nothing_known(origin.evidence) ? "" : what_is_known(origin.evidence), ""});
}

void explain(Run& run) {
  for (Origin& origin : run.origins) explain(origin);
}

void explain(Diagnosis& diagnosis) {
  for (Origin& origin : diagnosis.culprits) explain(origin);
}

}  // namespace firstfault::reason
