// Every backward adds to what the one before left: the gradients are never cleared.
#include "firstfault/reason/rules/rule.h"

namespace firstfault::reason {
namespace {

constexpr std::size_t kSteps = 8;  ///< in a row, up to the harm or the end: longer than an accumulation on purpose
constexpr std::size_t kStepsToHarm = 2;  ///< where it was so from the start and the run failed
constexpr double kWithHarm = 0.95;
constexpr double kWithout = 0.94;

/// The steps up to the last one in which gradients were left over, without a gap.
struct Suffix {
  std::size_t steps = 0;
  std::size_t all = 0;  ///< but for the first, which has nothing to find
  std::int64_t first = 0;
};

/// Skipped steps count too: a scaler that never settles may do so because nothing is cleared.
std::vector<const StepRow*> attempted(const Reading& reading) {
  const Harm& harm = reading.harm();
  std::vector<const StepRow*> rows;
  for (const StepRow& row : reading.run().rows) {
    const bool own = reading.rows().empty() || row.optimizer == reading.rows().front()->optimizer;
    if (own && !(harm.kind == Harm::Kind::fault && row.step >= harm.step)) rows.push_back(&row);
  }
  return rows;
}

Suffix left_over(const std::vector<const StepRow*>& rows) {
  Suffix suffix;
  suffix.all = rows.empty() ? 0 : rows.size() - 1;
  for (auto row = rows.rbegin(); row != rows.rend() && (*row)->gradients_left_over; ++row, ++suffix.steps)
    suffix.first = (*row)->step;
  return suffix;
}

std::optional<Hypothesis> judge(const Reading& reading) {
  const Harm& harm = reading.harm();
  if (harm.kind == Harm::Kind::fault && !harm.grew) return std::nullopt;
  const Suffix left = left_over(attempted(reading));
  const bool always = left.steps >= left.all && left.steps >= kStepsToHarm && harm.grew;
  if (left.steps < kSteps && !always) return std::nullopt;
  if (harm.grew && harm.step < left.first) return std::nullopt;
  Hypothesis result;
  if (harm.grew) {
    result = reading.about_growth("missing_zero_grad", kWithHarm);
  } else {
    result.cause = "missing_zero_grad";
    result.confidence = kWithout;
    result.step = left.first;
    result.phase = "optimizer";
  }
  result.onset_step = left.first;
  const std::string text = "in the " + std::to_string(left.steps) + " steps from " + std::to_string(left.first) +
                           " on, backward() added to gradients that were not zero";
  result.description = "The gradients are never cleared: " + text +
                       ". Each step applies the sum of all gradients so far, which overshoots further and further.";
  result.evidence.insert(result.evidence.begin(), {left.first, "", text});
  result.advice = "call optimizer.zero_grad() once per step, before backward().";
  return result;
}

std::string condition() {
  return "gradients were added to, with no zeroing between two updates, in " + std::to_string(kSteps) +
         " steps in a row up to the end or the harm, or in all of at least " + std::to_string(kStepsToHarm) +
         " where the run diverged";
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
