// The run learnt at first; then its steps became too small to go on, with a loss that still has gradients.
#include <cmath>

#include "firstfault/reason/rules/rule.h"
#include "firstfault/reason/rules/stuck.h"

namespace firstfault::reason {
namespace {

constexpr double kPerhaps = 0.3;
constexpr double kGradientLeft = 0.5;  ///< late gradient norm over the early one: a finished run's is far lower

std::optional<Hypothesis> judge(const Reading& reading) {
  const auto found = stuck(reading);
  if (!found || found->from_start) return std::nullopt;
  const Series gradient = reading.series(&StepRow::gradient_norm);
  const auto half = static_cast<std::ptrdiff_t>(gradient.size() / 2);
  const double early = median(values_of({gradient.begin(), gradient.begin() + half}));
  const double late = median(values_of({gradient.begin() + half, gradient.end()}));
  const Series lr = reading.series(&StepRow::lr);
  const bool decayed = !lr.empty() && lr.back().value < 0.1 * quantile(values_of(lr), 1);
  if (decayed || !(late >= kGradientLeft * early)) return std::nullopt;
  Hypothesis result;
  result.cause = "plateau";
  result.confidence = kPerhaps;
  result.step = gradient[gradient.size() / 2].step;
  result.phase = "optimizer";
  result.description = "The loss stands still: steps move the parameters by only " + brief(found->update) +
                       " of their own size although the gradient norm, " + brief(late) + ", is as large as before.";
  result.evidence.push_back({result.step, "", "median update ratio " + brief(found->update)});
  result.advice = "look at the optimizer's second moment and its eps, at clipping, and at the learning rate.";
  return result;
}

std::string condition() {
  return "over " + std::to_string(kStuckSteps) +
         " steps or more, in the second half of the run, the median update "
         "ratio is below " +
         brief(kStuckUpdate) + ", the gradient norm at least " + brief(kGradientLeft) +
         " of the first half's, and the learning rate has not been lowered";
}

}  // namespace

namespace list {
extern const Rule plateau;
const Rule plateau{.name = "plateau",
                   .symptom = "the loss fell at first and stands still since",
                   .condition = condition,
                   .evidence = "Update ratio, gradient norm and learning rate of both halves of the run.",
                   .advice = "Look at the optimizer's second moment, at clipping, and at the learning rate.",
                   .source = "as loss_not_decreasing",
                   .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
