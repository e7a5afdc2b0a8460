// The loss is not what was meant: a mean over nothing, shapes that broadcast, raw scores as log-probabilities.
#include <algorithm>
#include <cmath>

#include "firstfault/reason/mechanisms/reading.h"
#include "firstfault/reason/rules/observed.h"
#include "firstfault/reason/rules/rule.h"

namespace firstfault::reason {
namespace {

constexpr double kBroadcast = 0.93;
constexpr double kRawScores = 0.95;
constexpr double kMaskRead = 0.6;
constexpr std::int64_t kSteps = 2;  ///< one odd batch is no definition

Hypothesis about(const Reading& reading, const Fact& fact, double confidence) {
  Hypothesis result;
  const bool harmed = reading.harm().kind != Harm::Kind::none;
  result.cause = "loss_definition";
  result.confidence = confidence;
  result.step = harmed ? reading.harm().step : fact.first_step;
  result.onset_step = fact.first_step;
  result.phase = "forward";
  result.op = harmed && reading.harm().origin != nullptr ? reading.harm().origin->op : fact.op;
  result.module = fact.module;
  result.file = fact.file;
  result.line = fact.line;
  return result;
}

std::optional<Hypothesis> broadcast(const Reading& reading) {
  const Fact* fact = reading.fact(FactKind::loss_broadcast);
  if (fact == nullptr || fact->count < kSteps) return std::nullopt;
  Hypothesis result = about(reading, *fact, kBroadcast);
  result.description = "Prediction and target have different shapes, " + fact->detail +
                       ", and broadcast against each other: every prediction is compared with every target, and the "
                       "best the model can do is to answer their mean.";
  result.evidence.push_back(
      {fact->first_step, fact->op, "shapes " + fact->detail + " in " + std::to_string(fact->count) + " steps"});
  result.advice = "give the target the shape of the prediction, as with y.unsqueeze(1).";
  return result;
}

std::optional<Hypothesis> raw_scores(const Reading& reading) {
  const Fact* fact = reading.fact(FactKind::raw_scores);
  if (fact == nullptr || fact->count < kSteps) return std::nullopt;
  Hypothesis result = about(reading, *fact, kRawScores);
  const double most = Reading::number(*fact, "max");
  const double sum = Reading::number(*fact, "row_sum");
  std::string text = "nll_loss was given values that are no log-probabilities";
  if (std::isfinite(most)) text += ": the largest is " + brief(most) + " where none can exceed 0";
  if (std::isfinite(sum))
    text += std::string(std::isfinite(most) ? ", and" : ":") + " exp of a row sums to " + brief(sum) + " instead of 1";
  result.description = text + ". Such a loss has no lower bound, so training drives it to -Inf.";
  result.evidence.push_back({fact->first_step, fact->op, text});
  result.advice = "apply log_softmax before nll_loss, or use cross_entropy on the raw scores.";
  return result;
}

/// Nothing was computed wrongly: the loss adds up elements that a mask has set to Inf.
std::optional<Hypothesis> mask_read(const Reading& reading) {
  const Origin* origin = reading.culprit();
  if (origin == nullptr || !origin->mechanism.empty() || origin->phase != Phase::forward || origin->sink != "loss")
    return std::nullopt;
  const auto& operands = origin->evidence.operands;
  const auto in_state = [&](OperandState state) {
    return std::any_of(operands.begin(), operands.end(), [&](const Operand& one) { return one.state == state; });
  };
  if (!is_inf(origin->evidence.first) || !in_state(OperandState::intended_inf) || in_state(OperandState::bad))
    return std::nullopt;
  Hypothesis result = reading.about_culprit(*origin, kMaskRead);
  result.cause = "loss_definition";
  result.description += " The loss reads elements that were masked, such as a target class that a mask forbids.";
  result.advice = "leave masked elements out of the loss, or mask with a large finite number.";
  return result;
}

std::optional<Hypothesis> judge(const Reading& reading) {
  if (auto known = observed(reading, "loss_definition")) return known;
  if (auto known = mask_read(reading)) return known;
  if (auto known = raw_scores(reading)) return known;
  return broadcast(reading);
}

std::string condition() {
  return "a mean over no element, or every target ignored (mechanisms division_by_zero, all_targets_ignored); or a "
         "loss that adds up a mask's Inf; or, in " +
         std::to_string(kSteps) +
         " steps or more: prediction and target broadcast against each other, or nll_loss reads values above 0";
}

}  // namespace

namespace list {
extern const Rule loss_definition;
const Rule loss_definition{.name = "loss_definition",
                           .symptom =
                               "NaN loss for some batches; or a loss that falls below 0 without end; or one that "
                               "settles at the variance of the targets",
                           .condition = condition,
                           .evidence =
                               "The operands at the loss; the shapes of prediction and target; the largest "
                               "value that nll_loss was given.",
                           .advice =
                               "Guard the reduction; give the target the prediction's shape; log_softmax before "
                               "nll_loss.",
                           .source = "definition of the loss; no threshold",
                           .stands_alone = true,
                           .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
