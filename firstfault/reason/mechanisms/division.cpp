// Which operand an op divides by, and whether it was 0 at the first bad element.
#include "firstfault/reason/mechanisms/division.h"

#include "firstfault/reason/mechanisms/reading.h"

namespace firstfault::reason {
namespace {

ZeroDivision parts(const OriginEvidence& evidence) {
  const std::string_view name = judged(evidence);
  if (one_of(name, {"div", "true_divide", "divide", "floor_divide", "remainder", "fmod"}))
    return {find(evidence, "other"), find(evidence, "self")};
  if (name == "addcdiv") return {find(evidence, "tensor2"), find(evidence, "tensor1")};
  if (one_of(name, {"reciprocal", "rsqrt"})) return {find(evidence, "self"), nullptr};
  return {};
}

/// Without the element's own value: what must have been so.
bool follows(const OriginEvidence& evidence, const ZeroDivision& division) {
  if (!known_finite(division.denominator) || is_complex(division.denominator->dtype)) return false;
  const auto& zeros = division.denominator->zeros;
  if (zeros && *zeros == 0) return false;
  if (evidence.first == kNaN) return division.numerator != nullptr && known_finite(division.numerator);
  const bool numerator_finite = division.numerator == nullptr || known_finite(division.numerator);
  return zeros && numerator_finite && elements(division.denominator->shape) == *zeros;
}

}  // namespace

std::optional<ZeroDivision> zero_division(const OriginEvidence& evidence) {
  ZeroDivision division = parts(evidence);
  if (division.denominator == nullptr || evidence.first == kFinite) return std::nullopt;
  if (division.denominator->state == OperandState::bad && !division.denominator->value) return std::nullopt;
  const auto numerator = value_of(division.numerator);
  if (numerator && kind_of(*numerator) == kNaN) return std::nullopt;
  if (const auto value = value_of(division.denominator)) {
    if (*value != 0) return std::nullopt;
    division.observed = true;
    return division;
  }
  if (!follows(evidence, division)) return std::nullopt;
  return division;
}

std::string denominator_text(const ZeroDivision& division) {
  const Operand& denominator = *division.denominator;
  if (division.observed) return holds(denominator) + zeros_note(denominator);
  return called(denominator) + " was finite and not kept; only a 0 in it gives this" + zeros_note(denominator);
}

}  // namespace firstfault::reason
