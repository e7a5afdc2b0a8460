// One step that threw the run back: the batch looks ordinary, the loss took long to come down again.
#include <algorithm>
#include <cmath>

#include "firstfault/reason/rules/batch.h"
#include "firstfault/reason/rules/rule.h"

namespace firstfault::reason {
namespace {

constexpr double kSpikeTimes = 10;  ///< loss over its level in that step, with a robust z above 6
constexpr double kOfFirst =
    0.1;  ///< loss of the spike over the first loss: below it, little of what was learnt is lost
constexpr double kNote = 0.4;

std::optional<Hypothesis> judge(const Reading& reading) {
  if (reading.harm().kind != Harm::Kind::none) return std::nullopt;
  const Series loss = reading.series(&StepRow::loss);
  if (loss.empty()) return std::nullopt;
  for (const StepRow* row : reading.rows()) {
    if (!(row->loss >= kOfFirst * std::fabs(loss.front().value))) continue;
    const auto spike = spike_at(reading, row->step);
    if (!spike || spike->loss_times < kSpikeTimes || !thrown_back(reading, row->step)) continue;
    Hypothesis result;
    result.cause = "loss_spike";
    result.confidence = kNote;
    result.step = row->step;
    result.onset_step = row->step;
    result.phase = "data";
    const std::string text = "the loss rose to " + brief(row->loss) + ", " + brief(spike->loss_times) +
                             " times its level, and the gradient norm to " + brief(row->gradient_norm);
    result.description = "In step " + std::to_string(row->step) + " " + text + ", and the steps after it stayed " +
                         brief(kAfterTimes) + " times above.";
    result.evidence.push_back({row->step, "loss", text});
    result.advice = "look at the batch of this step; clip the gradient norm to its usual level.";
    return result;
  }
  return std::nullopt;
}

std::string condition() {
  return "the loss of one step stands " + brief(kSpikeTimes) + " times and a robust z of " + brief(kOutlierZ) +
         " above the " + std::to_string(kOutlierWindow) + " steps before, and the median of the " +
         std::to_string(kAfter) + " steps after it " + brief(kAfterTimes) + " times";
}

}  // namespace

namespace list {
extern const Rule loss_spike;
const Rule loss_spike{.name = "loss_spike",
                      .symptom = "one step far above the curve, from which the run recovers slowly",
                      .condition = condition,
                      .evidence = "Loss and gradient norm of the step against the steps before and after.",
                      .advice = "Look at the batch; clip the gradient norm.",
                      .source = "Megatron-LM: 10 times; OLMo-core: 6 standard deviations of the last 128 steps",
                      .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
