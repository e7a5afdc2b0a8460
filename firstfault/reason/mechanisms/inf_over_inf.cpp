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
const Mechanism inf_over_inf{"inf_over_inf", "Inf / Inf of Inf that the operands hold already", judge};
}  // namespace list

}  // namespace firstfault::reason
