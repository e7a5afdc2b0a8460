// Inf - Inf, between two operands or among the elements of a sum.
#include <cmath>

#include "firstfault/base/numbers.h"
#include "firstfault/reason/mechanisms/met_inf.h"
#include "firstfault/reason/mechanisms/reading.h"

namespace firstfault::reason {
namespace {

std::optional<Verdict> between_operands(const OriginEvidence& evidence) {
  const std::string_view op = judged(evidence);
  if (!one_of(op, {"add", "sub", "rsub", "subtract"})) return std::nullopt;
  const auto pair = elementwise_pair(evidence);
  if (!pair || !std::isinf(pair->a) || !std::isinf(pair->b)) return std::nullopt;
  const auto alpha = value_of(find(evidence, "alpha"));
  if (alpha && *alpha != 1) return std::nullopt;
  const bool opposite = (pair->a > 0) != (pair->b > 0);
  if (opposite != (op == "add")) return std::nullopt;
  return met_inf(evidence, "Inf - Inf", *pair);
}

/// A sum over all elements, of which some are +Inf and some -Inf.
std::optional<Verdict> among_elements(const OriginEvidence& evidence) {
  const Operand* self = find(evidence, "self");
  if (!one_of(judged(evidence), {"sum", "mean"}) || evidence.first != kNaN || self == nullptr) return std::nullopt;
  if (!evidence.shape.empty() || self->counts.nan > 0) return std::nullopt;
  if (self->counts.pos_inf == 0 || self->counts.neg_inf == 0) return std::nullopt;
  return Verdict{"op_domain",
                 "a sum with both +Inf and -Inf is NaN" + inside(evidence) + ": its " + called(*self) + " holds " +
                     show_count(self->counts.pos_inf) + " +Inf and " + show_count(self->counts.neg_inf) + " -Inf",
                 "look at the ops that made the Inf, and leave such elements out of the sum."};
}

std::optional<Verdict> judge(const OriginEvidence& evidence) {
  if (auto verdict = between_operands(evidence)) return verdict;
  return among_elements(evidence);
}

}  // namespace

namespace list {
extern const Mechanism inf_minus_inf;
const Mechanism inf_minus_inf{.name = "inf_minus_inf",
                              .condition = "Inf - Inf of Inf that the operands hold already",
                              .cause = "op_domain",
                              .reading = "The op is only where two Inf met; what made them comes earlier.",
                              .remedy = "Look at the op that made the Inf.",
                              .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
