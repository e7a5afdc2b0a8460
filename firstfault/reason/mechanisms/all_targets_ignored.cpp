// A mean over targets of which none counts: 0/0.
#include "firstfault/base/numbers.h"
#include "firstfault/reason/mechanisms/mechanism.h"
#include "firstfault/reason/mechanisms/reading.h"

namespace firstfault::reason {
namespace {

bool takes_class_targets(std::string_view name) {
  return one_of(
      name, {"nll_loss_forward", "nll_loss2d_forward", "nll_loss", "nll_loss2d", "nll_loss_nd", "cross_entropy_loss"});
}

/// What the evidence says about the targets; "" where it shows that some of them count.
std::string why(const OriginEvidence& evidence) {
  const Operand* target = find(evidence, "target");
  const Operand* weight = find(evidence, "weight");
  const bool weighted = weight != nullptr && !weight->shape.empty();
  if (target != nullptr && elements(target->shape) == 0) return "'target' has no elements";
  const auto ignored = value_of(find(evidence, "ignore_index"));
  if (target != nullptr && target->min && target->max && ignored) {
    if (*target->min == *ignored && *target->max == *ignored) {
      return "every target is ignore_index (" + show_number(*ignored) + "), " + show_count(elements(target->shape)) +
             " of them";
    }
    return weighted ? "the class weights of the targets sum to 0" : "";
  }
  return weighted ? "every target is ignored, or the class weights of the targets sum to 0" : "every target is ignored";
}

/// With finite scores and weights, 0/0 is the only NaN that these ops can make.
std::optional<Verdict> judge(const OriginEvidence& evidence) {
  const Operand* scores = find(evidence, "self");
  const Operand* weight = find(evidence, "weight");
  if (!takes_class_targets(judged(evidence)) || evidence.first != kNaN || !evidence.shape.empty()) return std::nullopt;
  if (!known_finite(scores)) return std::nullopt;
  if (weight != nullptr && !weight->shape.empty() && !known_finite(weight)) return std::nullopt;
  const std::string reason = why(evidence);
  if (reason.empty()) return std::nullopt;
  return Verdict{"loss_definition", "the mean over no target is 0/0 = NaN: " + reason,
                 "skip such a batch, or use reduction='sum' and divide by max(1, number of kept targets)."};
}

}  // namespace

namespace list {
extern const Mechanism all_targets_ignored;
const Mechanism all_targets_ignored{
    .name = "all_targets_ignored",
    .condition =
        "mean of cross_entropy or nll_loss with every target ignore_index, no target, or weights that sum to 0",
    .cause = "loss_definition",
    .reading =
        "The mean divides by the number (or weight) of the targets that count. With finite scores, 0/0 is the only "
        "NaN these losses can make, so the verdict stands also where the targets were not read.",
    .remedy = "Skip such a batch, or divide a sum by max(1, count).",
    .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
