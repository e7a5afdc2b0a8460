// Steps that overshoot: each one makes the next gradient larger.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "firstfault/reason/rules/rule.h"

namespace firstfault::reason {
namespace {

constexpr double kUnstable = 0.1;  ///< rms of a step over rms of the parameters
constexpr double kDiverged = 0.9;
constexpr double kJumped = 0.96;
constexpr double kCalmSteps = 0.4;  ///< steps of ordinary size: something else grew
constexpr double kStuck = 0.6;
constexpr std::size_t kEnough = 20;
constexpr std::int64_t kAfter = 5;  ///< steps after a jump of the learning rate
constexpr std::size_t kBefore = 8;
constexpr double kWorse = 0.5;  ///< of the loss before: so much higher it is after
constexpr std::ptrdiff_t kFirst = 8;
constexpr double kThrown = 0.2;  ///< median update ratio of the first steps
constexpr double kLittle = 0.8;  ///< last loss over first
constexpr double kAtFirst = 0.7;

Hypothesis of_step(std::int64_t step, double confidence, std::string description) {
  Hypothesis result;
  result.cause = "lr_too_high";
  result.confidence = confidence;
  result.step = step;
  result.onset_step = step;
  result.phase = "optimizer";
  result.description = std::move(description);
  return result;
}

void name_jump(const RateJump& jump, Hypothesis& result) {
  const std::string text = "the learning rate went from " + brief(jump.from) + " to " + brief(jump.to) + " in step " +
                           std::to_string(jump.step);
  result.onset_step = jump.step;
  result.confidence = kJumped;
  result.description =
      "In step " + std::to_string(jump.step) + " " + text.substr(0, text.rfind(" in step")) + ". " + result.description;
  result.evidence.insert(result.evidence.begin(), {jump.step, "", text});
}

std::optional<Hypothesis> diverged(const Reading& reading) {
  const Harm& harm = reading.harm();
  if (!harm.grew) return std::nullopt;
  const Series moved = between(reading.series(&StepRow::update_ratio), harm.onset - 1, harm.step + 1);
  const bool unstable = !moved.empty() && quantile(values_of(moved), 1) >= kUnstable;
  Hypothesis result = reading.about_growth("lr_too_high", unstable ? kDiverged : kCalmSteps);
  result.description = "The steps overshoot: each one makes the loss and the next gradient larger, until the run " +
                       std::string(harm.kind == Harm::Kind::fault ? "is no longer finite." : "is thrown off.");
  if (const auto jump = reading.rate_jump(harm.step)) name_jump(*jump, result);
  if (harm.origin != nullptr) {
    const Origin& origin = *harm.origin;
    result.evidence.push_back(
        {origin.step, origin.module,
         "the first non-finite value, in " + origin.op + ", is where the growth ended: an effect"});
  }
  return result;
}

/// Everything finite, but the parameters are thrown about and the loss gets nowhere.
std::optional<Hypothesis> thrown_about(const Reading& reading) {
  if (reading.harm().kind != Harm::Kind::none) return std::nullopt;
  const Series update = reading.series(&StepRow::update_ratio);
  if (update.size() < kEnough || reading.learning() == Learning::improves) return std::nullopt;
  const double usual =
      median(values_of({update.begin() + static_cast<std::ptrdiff_t>(update.size() / 2), update.end()}));
  if (!(usual >= kUnstable)) return std::nullopt;
  const std::int64_t first = update.front().step;
  Hypothesis result = of_step(first, kStuck,
                              "Each step moves the parameters by " + brief(usual) +
                                  " of their own size, from the first to the last, and the loss does not improve.");
  result.evidence.push_back({first, "", "update ratio " + brief(usual) + " in the second half of the run"});
  return result;
}

/// A jump of the learning rate after which the loss is well above where it was, if not by orders.
std::optional<Hypothesis> jumped(const Reading& reading) {
  if (reading.harm().kind != Harm::Kind::none || reading.rows().empty()) return std::nullopt;
  const auto jump = reading.rate_jump(reading.rows().back()->step);
  if (!jump) return std::nullopt;
  const Series loss = reading.series(&StepRow::loss);
  const Series later = between(loss, jump->step + 1, jump->step + 1 + kAfter);
  const auto moved = at(reading.series(&StepRow::update_ratio), jump->step);
  const double usual = median(values_of(before(loss, jump->step, kBefore)));
  const double now = median(values_of(later));
  if (later.empty() || !moved || *moved < kUnstable || !(now > usual + kWorse * std::fabs(usual))) return std::nullopt;
  Hypothesis result =
      of_step(jump->step + 1, kJumped,
              "The step moved the parameters by " + brief(*moved) + " of their own size, and the loss went from " +
                  brief(usual) + " to " + brief(now) + ".");
  name_jump(*jump, result);
  return result;
}

/// The first steps threw the parameters about, and little was learnt ever after.
std::optional<Hypothesis> thrown_at_first(const Reading& reading) {
  const Series update = reading.series(&StepRow::update_ratio);
  const bool little = reading.learning() != Learning::unknown && reading.remaining() > kLittle;
  if (reading.harm().kind != Harm::Kind::none || update.size() < kEnough || !little) return std::nullopt;
  const double usual = median(values_of({update.begin(), update.begin() + kFirst}));
  if (!(usual >= kThrown)) return std::nullopt;
  const std::int64_t first = update.front().step;
  Hypothesis result = of_step(first, kAtFirst,
                              "The first steps moved the parameters by " + brief(usual) +
                                  " of their own size each, and the loss has hardly improved since.");
  result.evidence.push_back(
      {first, "", "update ratio " + brief(usual) + " in the first " + std::to_string(kFirst) + " steps"});
  return result;
}

std::optional<Hypothesis> judge(const Reading& reading) {
  auto result = diverged(reading);
  if (!result) result = jumped(reading);
  if (!result) result = thrown_about(reading);
  if (!result) result = thrown_at_first(reading);
  if (result) result->advice = "divide the learning rate by ten; scale it with the batch size; add a warm-up.";
  return result;
}

std::string condition() {
  return "loss and gradients grew over steps while the optimizer moved the parameters by much of themselves, and no "
         "more specific cause is seen; or a median update ratio of " +
         brief(kUnstable) + " and a loss that does not improve over " + std::to_string(kEnough) +
         " steps; or a learning rate that jumps, with a loss " + brief(kWorse) +
         " higher after it; or a median update "
         "ratio of " +
         brief(kThrown) + " in the first " + std::to_string(kFirst) + " steps and a loss that stays above " +
         brief(kLittle) + " of the first";
}

}  // namespace

namespace list {
extern const Rule lr_too_high;
const Rule lr_too_high{
    .name = "lr_too_high",
    .symptom = "the loss grows geometrically or oscillates, then NaN",
    .condition = condition,
    .evidence = "Loss, gradient norm, parameter norm and update ratio over the steps before the harm.",
    .advice = "Divide the learning rate by ten or more; warm it up.",
    .source =
        "ordinary training moves parameters by about 1e-3 of themselves in a step; torchmortem "
        "alarms above 0.1, SageMaker Debugger above 10",
    .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
