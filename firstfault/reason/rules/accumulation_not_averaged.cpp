// Several backward passes per update, each with a full mean loss: the gradient is as many times too large.
#include <algorithm>
#include <cmath>
#include <string>

#include "firstfault/reason/rules/rule.h"

namespace firstfault::reason {
namespace {

constexpr int kBackwards = 4;        ///< two or three are as often the parts of a loss
constexpr std::int64_t kOnset = 30;  ///< a step that is too large shows within the first ones
constexpr int kMany = 8;
constexpr double kLikely = 0.92;
constexpr double kFew = 0.6;
constexpr double kAveraged = 2;  ///< number of backward passes times what the loss was multiplied by

/// Such an optimizer divides by the size of the gradients: k times the gradient makes the same step.
bool adaptive(const Reading& reading) {
  const auto& optimizers = reading.run().setup.optimizers;
  return std::any_of(optimizers.begin(), optimizers.end(), [](const OptimizerInfo& one) { return one.type != "SGD"; });
}

/// What the loss was multiplied by on its way to backward(): 1/k where it is averaged; NaN where it is not known.
double factor(const Reading& reading) {
  const Fact* fact = reading.fact(FactKind::loss_op);
  return fact != nullptr ? Reading::number(*fact, "factor") : std::nan("");
}

double confidence(const Reading& reading, int backwards) {
  const double times = factor(reading);
  if (std::isnan(times)) return backwards < kMany ? kFew : kLikely;
  return times * backwards < kAveraged ? 0 : kLikely;
}

std::optional<Hypothesis> judge(const Reading& reading) {
  if (!reading.harm().grew || reading.harm().onset > kOnset || adaptive(reading)) return std::nullopt;
  const auto rows = reading.healthy_rows();
  if (rows.empty()) return std::nullopt;
  int fewest = rows.front()->backwards;
  for (const StepRow* row : rows) fewest = std::min(fewest, row->backwards);
  if (fewest < kBackwards || confidence(reading, fewest) == 0) return std::nullopt;
  Hypothesis result = reading.about_growth("accumulation_not_averaged", confidence(reading, fewest));
  const std::string count = std::to_string(fewest);
  result.description = count + " backward passes are added up before each update, and the loss is not divided by " +
                       count + ": the gradient is " + count +
                       " times that of one averaged batch, and so is the step. The run diverged.";
  result.evidence.insert(result.evidence.begin(),
                         {rows.front()->step, "", "at least " + count + " backward passes in each step"});
  result.advice = "divide each micro-batch's loss by the number of backward passes per update.";
  return result;
}

std::string condition() {
  return "the run diverged, beginning within its first " + std::to_string(kOnset) + " steps, with " +
         std::to_string(kBackwards) +
         " or more backward passes in every step and an optimizer that does not divide by the size of the gradients, "
         "and the loss is not multiplied by less than " +
         brief(kAveraged) + " over their number on its way to backward()";
}

}  // namespace

namespace list {
extern const Rule accumulation_not_averaged;
const Rule accumulation_not_averaged{
    .name = "accumulation_not_averaged",
    .symptom = "divergence from the first steps with gradient accumulation",
    .condition = condition,
    .evidence = "The number of backward passes per update; what the loss was multiplied by before them; the growth.",
    .advice = "Divide each micro-batch's loss by the number of backward passes per update.",
    .source = "k mean losses add up to k times the gradient of their mean",
    .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
