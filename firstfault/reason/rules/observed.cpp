// What rules share whose cause is read off the operands of the first faulty op.
#include "firstfault/reason/rules/observed.h"

#include "firstfault/reason/mechanisms/reading.h"

namespace firstfault::reason {

std::optional<Hypothesis> observed(const Reading& reading, std::string_view cause) {
  const Origin* origin = reading.culprit();
  if (origin == nullptr || origin->cause != cause) return std::nullopt;
  return reading.about_culprit(*origin, kObserved);
}

Divisor divisor(const Origin& origin) {
  if (origin.mechanism != "division_by_zero") return Divisor::computed;
  const Operand* below = find(origin.evidence, "other");
  if (below == nullptr) return Divisor::computed;
  if (below->source.starts_with("buffer")) return Divisor::statistic;
  return below->is_scalar_argument && below->value == 0.0 ? Divisor::setting : Divisor::computed;
}

bool python_number(const Origin& origin) {
  const OriginEvidence& evidence = origin.evidence;
  const bool held = evidence.role == TensorRole::batch || evidence.role == TensorRole::outside;
  return held && evidence.shape.empty() && evidence.dtype == "float64";
}

}  // namespace firstfault::reason
