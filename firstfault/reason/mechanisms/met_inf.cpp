// An Inf that was there before the op meets what makes it NaN.
#include "firstfault/reason/mechanisms/met_inf.h"

#include "firstfault/reason/mechanisms/reading.h"

namespace firstfault::reason {

std::optional<Pair> elementwise_pair(const OriginEvidence& evidence) {
  const Operand* left = find(evidence, "self");
  const Operand* right = find(evidence, "other");
  const auto a = value_of(left);
  const auto b = value_of(right);
  if (evidence.first != kNaN || !a || !b) return std::nullopt;
  return Pair{left, right, *a, *b};
}

Verdict met_inf(const OriginEvidence& evidence, const std::string& what, const Pair& pair) {
  return {"op_domain",
          what + " is NaN" + inside(evidence) + ": its " + holds(*pair.left) + " and its " + holds(*pair.right),
          "look at the op that made the Inf: a mask's fill value can be a large finite number instead."};
}

}  // namespace firstfault::reason
