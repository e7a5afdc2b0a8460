// Gradients clipped while still multiplied by the loss scale: next to nothing of them is left.
#include "firstfault/base/numbers.h"
#include "firstfault/reason/rules/rule.h"

namespace firstfault::reason {
namespace {

constexpr std::int64_t kSteps = 3;
constexpr double kCertain = 0.93;
constexpr double kScale = 2;  ///< below it the order makes no difference worth a word

std::optional<Hypothesis> judge(const Reading& reading) {
  const Fact* fact = reading.fact(FactKind::clipped_scaled);
  if (fact == nullptr || fact->count < kSteps) return std::nullopt;
  const double scale = Reading::number(*fact, "scale");
  if (!(scale >= kScale)) return std::nullopt;
  Hypothesis result;
  result.cause = "clip_before_unscale";
  result.confidence = kCertain;
  result.step = fact->first_step;
  result.onset_step = fact->first_step;
  result.phase = "optimizer";
  result.file = fact->file;
  result.line = fact->line;
  result.description = "The gradients are clipped while they are still multiplied by the loss scale, " +
                       show_number(scale) +
                       ": the limit is meant for their true norm, so after unscaling they are up to " +
                       show_number(scale) + " times too small.";
  result.evidence.push_back(
      {fact->first_step, "", "clipped before unscale in " + std::to_string(fact->count) + " steps"});
  result.advice = "call scaler.unscale_(optimizer) before clip_grad_norm_.";
  return result;
}

std::string condition() {
  return "gradients were scaled down between backward and step, in " + std::to_string(kSteps) +
         " steps or more, while still multiplied by a loss scale of " + brief(kScale) + " or more";
}

}  // namespace

namespace list {
extern const Rule clip_before_unscale;
const Rule clip_before_unscale{.name = "clip_before_unscale",
                               .symptom = "training under a GradScaler crawls once clipping is on",
                               .condition = condition,
                               .evidence = "The order of clipping and unscaling, and the loss scale.",
                               .advice = "scaler.unscale_(optimizer) before clip_grad_norm_.",
                               .source = "PyTorch's notes on automatic mixed precision",
                               .stands_alone = true,
                               .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
