// Which operand an op divides by, and whether it was 0 at the first bad element.
#pragma once

#include <optional>
#include <string>

#include "firstfault/events/evidence.h"

namespace firstfault::reason {

struct ZeroDivision {
  const Operand* denominator = nullptr;
  const Operand* numerator = nullptr;  ///< null where the op has none (reciprocal) or it is not known
  bool observed = false;               ///< the 0 was read; else it follows: finite / finite is NaN only as 0/0
};

/// A division (div, reciprocal, rsqrt, remainder …) whose denominator is 0 where the output is bad.
std::optional<ZeroDivision> zero_division(const OriginEvidence& evidence);

/// "operand 'other' holds 0 at [3] (2 of 80 elements are 0)", or how it follows.
std::string denominator_text(const ZeroDivision& division);

}  // namespace firstfault::reason
