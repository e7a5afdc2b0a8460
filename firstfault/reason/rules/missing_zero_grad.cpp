// Every backward adds to what the one before left: the gradients are never cleared.
#include <algorithm>

#include "firstfault/reason/rules/rule.h"

namespace firstfault::reason {
namespace {

constexpr double kShare = 0.9;  ///< of the steps after the first
constexpr std::size_t kSteps = 5;
constexpr std::size_t kStepsToHarm = 2;  ///< where the run failed, fewer are enough
constexpr double kWithHarm = 0.95;
constexpr double kWithout = 0.85;

std::optional<Hypothesis> judge(const Reading& reading) {
  const Harm& harm = reading.harm();
  const auto rows = reading.healthy_rows();
  const std::size_t need = harm.grew ? kStepsToHarm : kSteps;
  if (rows.size() < need + 1) return std::nullopt;
  const auto left = static_cast<std::size_t>(
      std::count_if(rows.begin() + 1, rows.end(), [](const StepRow* row) { return row->gradients_left_over; }));
  if (static_cast<double>(left) < kShare * static_cast<double>(rows.size() - 1)) return std::nullopt;
  if (harm.kind == Harm::Kind::fault && !harm.grew) return std::nullopt;
  Hypothesis result;
  if (harm.grew) {
    result = reading.about_growth("missing_zero_grad", kWithHarm);
  } else {
    result.cause = "missing_zero_grad";
    result.confidence = kWithout;
    result.step = rows[1]->step;
    result.phase = "optimizer";
  }
  result.onset_step = rows[1]->step;
  const std::string text = "in " + std::to_string(left) + " of " + std::to_string(rows.size() - 1) +
                           " steps after the first, backward() added to gradients that were not zero";
  result.description = "The gradients are never cleared: " + text +
                       ". Each step applies the sum of all gradients so far, which overshoots further and further.";
  result.evidence.insert(result.evidence.begin(), {rows[1]->step, "", text});
  result.advice = "call optimizer.zero_grad() once per step, before backward().";
  return result;
}

std::string condition() {
  return "gradients were added to, with no zeroing between two updates, in " + brief(100 * kShare) +
         " % of the steps after the first (at least " + std::to_string(kSteps) + " of them, " +
         std::to_string(kStepsToHarm) + " where the run diverged)";
}

}  // namespace

namespace list {
extern const Rule missing_zero_grad;
const Rule missing_zero_grad{.name = "missing_zero_grad",
                             .symptom = "the gradient norm grows about linearly; the loss swings ever further",
                             .condition = condition,
                             .evidence = "What backward() found in the gradients at the first backward of each step.",
                             .advice = "Call optimizer.zero_grad() before every backward().",
                             .source = "backward() accumulates by definition",
                             .stands_alone = true,
                             .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
