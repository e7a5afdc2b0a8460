// where and masks choose among forward values; in the backward both branches run, and the branch that was not chosen
// gets gradient 0, which times an infinite derivative is NaN.
#include <cmath>

#include "firstfault/reason/mechanisms/mechanism.h"
#include "firstfault/reason/mechanisms/reading.h"

namespace firstfault::reason {
namespace {

std::optional<Verdict> judge(const OriginEvidence& evidence) {
  if (!evidence.in_backward || evidence.first != kNaN || judged(evidence) != "mul") return std::nullopt;
  const Operand* a = find(evidence, "self");
  const Operand* b = find(evidence, "other");
  const auto x = value_of(a);
  const auto y = value_of(b);
  if (!x || !y) return std::nullopt;
  const bool meets = (*x == 0 && std::isinf(*y)) || (*y == 0 && std::isinf(*x));
  if (!meets) return std::nullopt;
  return Verdict{"op_domain",
                 "gradient 0 times derivative Inf is NaN" + inside(evidence) + ": " + holds(*a) + ", " + holds(*b) +
                     "; a gradient of 0 is what an element gets that a where, a mask or an index left out of the "
                     "forward value",
                 "make the input safe before the op as well ('double where'): where(ok, f(where(ok, x, 1)), 0)."};
}

}  // namespace

namespace list {
extern const Mechanism where_hides_forward_only;
const Mechanism where_hides_forward_only{
    .name = "where_hides_forward_only",
    .condition = "backward, 0 * Inf: the gradient through a branch that where, masked_fill or an index did not select",
    .cause = "op_domain",
    .reading =
        "Both branches of a where run in the backward. The one that was not chosen gets gradient 0, and 0 times an "
        "infinite derivative is NaN.",
    .remedy = "The double where: make the input safe first.",
    .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
