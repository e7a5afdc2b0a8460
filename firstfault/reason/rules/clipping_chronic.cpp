// Nearly every step is clipped, and hard: the clipping has become the learning rate.
#include <cmath>

#include "firstfault/reason/rules/rule.h"

namespace firstfault::reason {
namespace {

constexpr double kShare = 0.9;         ///< of the steps
constexpr double kCoefficient = 0.01;  ///< what is left of the gradient
constexpr std::int64_t kSteps = 10;
constexpr double kStarved = 1e-4;  ///< update ratio with the clip: too small to train; 1e-3 is ordinary
constexpr double kLikely = 0.92;
constexpr double kPerhaps = 0.4;  ///< many large models clip most steps and train well

/// What the clip leaves does not move the parameters.
bool starved(const Reading& reading) {
  const Series update = reading.series(&StepRow::update_ratio);
  return !update.empty() && median(values_of(update)) < kStarved;
}

std::optional<Hypothesis> judge(const Reading& reading) {
  const Fact* fact = reading.fact(FactKind::clipped);
  const auto steps = static_cast<double>(reading.run().steps);
  if (fact == nullptr || fact->count < kSteps || static_cast<double>(fact->count) < kShare * steps) return std::nullopt;
  const double coefficient = Reading::number(*fact, "coefficient");
  const Learning learning = reading.learning();
  if (!(coefficient <= kCoefficient) || learning == Learning::improves || learning == Learning::unknown)
    return std::nullopt;
  Hypothesis result;
  result.cause = "clipping_chronic";
  result.confidence = starved(reading) ? kLikely : kPerhaps;
  result.step = fact->first_step;
  result.phase = "optimizer";
  const std::string text = std::to_string(fact->count) + " of " + std::to_string(reading.run().steps) +
                           " steps were clipped, the last to " + brief(coefficient) + " of its gradient";
  result.description = "Nearly every step is clipped hard, and the loss does not improve: " + text +
                       ". The gradients are far larger than the limit allows for.";
  result.evidence.push_back({fact->first_step, "", text + " (norm " + brief(Reading::number(*fact, "norm")) + ")"});
  result.advice = "look for what makes the gradients large (data scale, initialisation); a clip is for the exception.";
  return result;
}

std::string condition() {
  return brief(100 * kShare) + " % of at least " + std::to_string(kSteps) + " steps are clipped, to " +
         brief(kCoefficient) +
         " of the gradient or less, and the loss does not improve; surer where the update ratio is below " +
         brief(kStarved);
}

}  // namespace

namespace list {
extern const Rule clipping_chronic;
const Rule clipping_chronic{.name = "clipping_chronic",
                            .symptom = "the loss does not improve; the gradient norm is far above the clipping limit",
                            .condition = condition,
                            .evidence = "Share of clipped steps, the norm before and the coefficient.",
                            .advice = "Find what makes the gradients large.",
                            .source = "own judgement: a clip that always acts is a learning rate",
                            .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
