// An Inf that was there before the op (a mask's -Inf, say) meets what makes it NaN.
#pragma once

#include <string>

#include "firstfault/events/evidence.h"
#include "firstfault/reason/mechanisms/mechanism.h"

namespace firstfault::reason {

/// The two operands of an elementwise op with the value each had at the bad element; empty unless both are known.
struct Pair {
  const Operand* left = nullptr;
  const Operand* right = nullptr;
  double a = 0;
  double b = 0;
};

std::optional<Pair> elementwise_pair(const OriginEvidence& evidence);

/// The verdict all three share: the Inf was made elsewhere, so look at what made it.
Verdict met_inf(const OriginEvidence& evidence, const std::string& what, const Pair& pair);

}  // namespace firstfault::reason
