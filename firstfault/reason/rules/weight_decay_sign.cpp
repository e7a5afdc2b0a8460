// A weight decay below 0 feeds the weights instead of shrinking them.
#include "firstfault/reason/rules/rule.h"

namespace firstfault::reason {
namespace {

constexpr double kCertain = 0.95;

std::optional<Hypothesis> judge(const Reading& reading) {
  for (const OptimizerInfo& optimizer : reading.run().setup.optimizers) {
    for (const auto& group : optimizer.groups) {
      const auto decay = group.find("weight_decay");
      if (decay == group.end() || !(decay->second < 0)) continue;
      Hypothesis result;
      if (reading.harm().grew) {
        result = reading.about_growth("weight_decay_sign", kCertain);
      } else {
        result.cause = "weight_decay_sign";
        result.confidence = kCertain;
        result.phase = "optimizer";
      }
      result.onset_step = 0;
      result.description = optimizer.type + " has a weight decay of " + brief(decay->second) +
                           ": each step makes the parameters larger by a constant factor, whatever the gradient says.";
      result.evidence.insert(result.evidence.begin(), {0, "", "weight_decay = " + brief(decay->second)});
      result.advice = "give weight_decay without a minus sign.";
      return result;
    }
  }
  return std::nullopt;
}

std::string condition() { return "an optimizer's parameter group has a weight_decay below 0"; }

}  // namespace

namespace list {
extern const Rule weight_decay_sign;
const Rule weight_decay_sign{.name = "weight_decay_sign",
                             .symptom = "the parameter norm grows by a constant factor per step",
                             .condition = condition,
                             .evidence = "The optimizer's settings when the run began.",
                             .advice = "Give weight_decay without a minus sign.",
                             .source = "definition of weight decay; no threshold",
                             .stands_alone = true,
                             .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
