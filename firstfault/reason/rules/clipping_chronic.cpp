// Nearly every step is clipped, and hard: the clipping has become the learning rate.
#include <cmath>

#include "firstfault/reason/rules/clip_trends.h"
#include "firstfault/reason/rules/rule.h"

namespace firstfault::reason {
namespace {

constexpr double kShare = 0.9;         ///< of the steps
constexpr double kCoefficient = 0.01;  ///< what is left of the gradient
constexpr std::int64_t kSteps = 10;
constexpr double kStarved = 1e-4;  ///< update ratio with the clip: too small to train; 1e-3 is ordinary
constexpr double kLikely = 0.92;
constexpr double kPerhaps = 0.4;  ///< many large models clip most steps and train well
constexpr double kTrend = 0.3;    ///< however lightly

/// What the clip leaves does not move the parameters.
bool starved(const Reading& reading) {
  const Series update = reading.series(&StepRow::update_ratio);
  return !update.empty() && median(values_of(update)) < kStarved;
}

bool learns(const Reading& reading) {
  const Learning learning = reading.learning();
  return learning == Learning::improves || learning == Learning::unknown;
}

/// Nearly every step of the run, and hard.
std::optional<Hypothesis> hard(const Reading& reading) {
  const Fact* fact = reading.fact(FactKind::clipped);
  const auto steps = static_cast<double>(reading.run().steps);
  if (fact == nullptr || fact->count < kSteps || static_cast<double>(fact->count) < kShare * steps) return std::nullopt;
  const double coefficient = Reading::number(*fact, "coefficient");
  if (!(coefficient <= kCoefficient)) return std::nullopt;
  Hypothesis result;
  result.confidence = starved(reading) ? kLikely : kPerhaps;
  result.step = fact->first_step;
  const std::string text = std::to_string(fact->count) + " of " + std::to_string(reading.run().steps) +
                           " steps were clipped, the last to " + brief(coefficient) + " of its gradient";
  result.description = "Nearly every step is clipped hard, and the loss does not improve: " + text +
                       ". The gradients are far larger than the limit allows for.";
  result.evidence.push_back({fact->first_step, "", text + " (norm " + brief(Reading::number(*fact, "norm")) + ")"});
  return result;
}

/// A guard's ledger: more and more steps; or more than half of them while the loss rises, as where it only stays many
/// a fine-tuning does well.
std::optional<Hypothesis> more_and_more(const ClipTrends& trends, Learning learning) {
  const Transition* often = learning == Learning::worse ? trends.chronic : nullptr;
  const Transition* first = trends.rising != nullptr ? trends.rising : often;
  if (first == nullptr) return std::nullopt;
  Hypothesis result;
  result.confidence = kTrend;
  result.step = first->step;
  result.description = std::string(trends.rising != nullptr ? "More and more" : "More than half of the") +
                       " steps are clipped, and the loss does not improve: the gradients outgrow the limit.";
  return result;
}

std::optional<Hypothesis> judge(const Reading& reading) {
  if (learns(reading)) return std::nullopt;
  const ClipTrends trends = clip_trends(reading.run(), reading.run().steps);
  auto result = hard(reading);
  if (!result) result = more_and_more(trends, reading.learning());
  if (!result) return std::nullopt;
  result->cause = "clipping_chronic";
  result->phase = "optimizer";
  if (trends.any()) result->param = trends.parameter;
  for (Evidence& one : evidence_of(trends)) result->evidence.push_back(std::move(one));
  result->advice = "look for what makes the gradients large (data scale, initialisation); a clip is for the exception.";
  return result;
}

std::string condition() {
  return brief(100 * kShare) + " % of at least " + std::to_string(kSteps) + " steps are clipped, to " +
         brief(kCoefficient) +
         " of the gradient or less, and the loss does not improve; surer where the update ratio is below " +
         brief(kStarved) +
         ". Less sure under a guard where three times the share of the first 100 steps is clipped, or the loss rises "
         "and more than half of the newest 100 steps were";
}

}  // namespace

namespace list {
extern const Rule clipping_chronic;
const Rule clipping_chronic{.name = "clipping_chronic",
                            .symptom = "the loss does not improve; the gradient norm is far above the clipping limit",
                            .condition = condition,
                            .evidence =
                                "Share of clipped steps, the norm before and the coefficient; since when it rose, and "
                                "the parameter behind most of the clips.",
                            .advice = "Find what makes the gradients large.",
                            .source = "own judgement: a clip that always acts is a learning rate",
                            .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
