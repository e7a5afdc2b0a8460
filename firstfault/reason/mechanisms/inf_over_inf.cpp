// Inf / Inf.
#include <cmath>

#include "firstfault/reason/mechanisms/met_inf.h"
#include "firstfault/reason/mechanisms/reading.h"

namespace firstfault::reason {
namespace {

std::optional<Verdict> judge(const OriginEvidence& evidence) {
  if (!one_of(judged(evidence), {"div", "divide", "true_divide"})) return std::nullopt;
  const auto pair = elementwise_pair(evidence);
  if (!pair || !std::isinf(pair->a) || !std::isinf(pair->b)) return std::nullopt;
  return met_inf(evidence, "Inf / Inf", *pair);
}

}  // namespace

namespace list {
extern const Mechanism inf_over_inf;
const Mechanism inf_over_inf{.name = "inf_over_inf",
                             .condition = "Inf / Inf of Inf that the operands hold already",
                             .cause = "op_domain",
                             .reading = "The op is only where two Inf met; what made them comes earlier.",
                             .remedy = "Look at the op that made the Inf.",
                             .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
