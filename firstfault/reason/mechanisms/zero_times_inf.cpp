// 0 * Inf, as when a 0/1 mask multiplies a score that is already -Inf.
#include <cmath>

#include "firstfault/reason/mechanisms/met_inf.h"
#include "firstfault/reason/mechanisms/reading.h"

namespace firstfault::reason {
namespace {

std::optional<Verdict> judge(const OriginEvidence& evidence) {
  if (!one_of(judged(evidence), {"mul", "multiply"})) return std::nullopt;
  const auto pair = elementwise_pair(evidence);
  if (!pair) return std::nullopt;
  const bool meets = (pair->a == 0 && std::isinf(pair->b)) || (pair->b == 0 && std::isinf(pair->a));
  if (!meets) return std::nullopt;
  return met_inf(evidence, "0 * Inf", *pair);
}

}  // namespace

namespace list {
extern const Mechanism zero_times_inf;
const Mechanism zero_times_inf{.name = "zero_times_inf",
                               .condition = "0 * Inf of an Inf that an operand holds already",
                               .cause = "op_domain",
                               .reading = "The op is only where the Inf met a 0; what made it comes earlier.",
                               .remedy = "Look at the op that made the Inf.",
                               .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
