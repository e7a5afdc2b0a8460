// The parameters have hardly moved since the run began.
#include "firstfault/reason/rules/rule.h"
#include "firstfault/reason/rules/stuck.h"

namespace firstfault::reason {
namespace {

constexpr double kLikely = 0.91;
constexpr double kRising = 1.5;    ///< last learning rate over the middle one: a warm-up has only begun
constexpr double kClipped = 0.01;  ///< what is left of the gradients: then the clip holds the run, not the rate
constexpr double kMoved = 1e-3;    ///< all steps together: whatever the loss did, it was not they

std::optional<Hypothesis> judge(const Reading& reading) {
  const auto found = stuck(reading);
  if (!found || !found->from_start) return std::nullopt;
  if (found->total > kMoved && reading.learning() == Learning::improves) return std::nullopt;
  const Series lr = reading.series(&StepRow::lr);
  if (!lr.empty() && lr.back().value > kRising * lr[lr.size() / 2].value) return std::nullopt;
  const Fact* clipped = reading.fact(FactKind::clipped);
  if (clipped != nullptr && Reading::number(*clipped, "coefficient") < kClipped) return std::nullopt;
  Hypothesis result;
  result.cause = "loss_not_decreasing";
  result.confidence = kLikely;
  result.step = reading.rows().front()->step;
  result.phase = "optimizer";
  result.description = "The loss is where it was at the start: the steps move the parameters by " +
                       brief(found->update) + " of their own size, too little to show, although gradients are there.";
  result.evidence.push_back({result.step, "", "median update ratio " + brief(found->update)});
  result.advice = "raise the learning rate, and check that a schedule does not hold it near 0.";
  return result;
}

std::string condition() {
  return "over " + std::to_string(kStuckSteps) + " steps or more the median update ratio is below " +
         brief(kStuckUpdate) +
         " from the start, gradients are not 0 nor clipped, the learning rate is not rising, and the loss does not "
         "improve";
}

}  // namespace

namespace list {
extern const Rule loss_not_decreasing;
const Rule loss_not_decreasing{
    .name = "loss_not_decreasing",
    .symptom = "the loss does not move from the first step on",
    .condition = condition,
    .evidence = "Update ratio, gradient norm and loss over the whole run.",
    .advice = "Raise the learning rate; check its schedule.",
    .source = "float32 resolves 1.2e-7 of a parameter; ordinary training moves 1e-3 in a step",
    .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
