// The last resort: something went wrong, and no rule knows why.
#include "firstfault/reason/rules/rule.h"

namespace firstfault::reason {
namespace {

constexpr double kUnknown = 0.2;

std::optional<Hypothesis> judge(const Reading& reading) {
  const Harm& harm = reading.harm();
  if (harm.kind == Harm::Kind::none) return std::nullopt;
  Hypothesis result = reading.about_growth("divergence", kUnknown);
  if (harm.origin != nullptr && !harm.grew) {
    result = reading.about_culprit(*harm.origin, kUnknown);
    result.cause = "divergence";
    result.description =
        "The run is no longer finite from step " + std::to_string(harm.step) + " on. " + result.description;
    return result;
  }
  result.phase = "";
  result.description = "The run left its course in step " + std::to_string(harm.step) + ", and no rule knows why.";
  result.advice =
      harm.kind == Harm::Kind::fault
          ? "trace this step (level \"ops\", or a replay under a guard) to see which op made the first value."
          : "look at learning rate, data and loss around this step.";
  return result;
}

std::string condition() {
  return "a non-finite loss, gradient or parameter, or growth of loss and gradients that did not come back, and no "
         "other rule speaks";
}

}  // namespace

namespace list {
extern const Rule divergence;
const Rule divergence{.name = "divergence",
                      .symptom = "the loss is NaN or runs away",
                      .condition = condition,
                      .evidence = "Loss, gradient norm, parameter norm and update ratio before the step.",
                      .advice = "Trace the step at the level of ops.",
                      .source = "no threshold of its own",
                      .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
