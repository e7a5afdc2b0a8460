// A finite computation went beyond the dtype although training had been calm.
#include "firstfault/reason/mechanisms/reading.h"
#include "firstfault/reason/rules/observed.h"
#include "firstfault/reason/rules/rule.h"

namespace firstfault::reason {
namespace {

constexpr double kNoMechanism = 0.5;
constexpr double kInBackward = 0.6;  ///< a product or sum of the backward: rather what made the gradients large

std::optional<Hypothesis> unknown_op(const Reading& reading) {
  const Origin* origin = reading.culprit();
  if (origin == nullptr || !origin->cause.empty() || !is_inf(origin->evidence.first)) return std::nullopt;
  if (!all_finite(origin->evidence)) return std::nullopt;
  Hypothesis result = reading.about_culprit(*origin, kNoMechanism);
  result.cause = "overflow";
  result.advice = "look at the size of this op's operands, and compute it in a wider dtype or in log space.";
  return result;
}

std::optional<Hypothesis> judge(const Reading& reading) {
  auto known = observed(reading, "overflow");
  if (!known) return unknown_op(reading);
  if (known->phase == "backward" && known->mechanism != "exp_overflow") known->confidence = kInBackward;
  return known;
}

std::string condition() {
  return "exp, a product, a sum or a power of finite operands beyond the dtype's largest value (mechanisms "
         "exp_overflow, dtype_overflow, reduction_overflow), and neither loss, gradients nor parameters had grown "
         "before it";
}

}  // namespace

namespace list {
extern const Rule overflow;
const Rule overflow{.name = "overflow",
                    .symptom = "Inf, then NaN, from one step to the next",
                    .condition = condition,
                    .evidence = "The operands' values and ranges at the op that made the Inf.",
                    .advice = "Subtract the maximum first (logsumexp), clamp, rescale, or use a wider dtype.",
                    .source = "IEEE 754: 65504 for float16, 3.4e38 for bfloat16 and float32",
                    .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
