// The optimizer's own memory: lost at a resume, or 0 in a dtype too narrow for it.
#include <algorithm>
#include <cmath>

#include "firstfault/reason/rules/observed.h"
#include "firstfault/reason/rules/rule.h"

namespace firstfault::reason {
namespace {

constexpr double kLossTimes = 3;    ///< over its level before the reset
constexpr double kUpdateTimes = 3;  ///< the step's size, likewise
constexpr double kLossZ = 3;
constexpr double kLeastSpread = 0.1;
constexpr std::size_t kHistory = 8;
constexpr std::size_t kWindow = 64;
constexpr std::int64_t kSteps = 20;  ///< after the reset
constexpr double kSecondLost = 0.3;  ///< of sqrt(v) in one step: with a decay of 0.9 or slower at least 0.95 is left
constexpr std::size_t kLeapWindow = 20;
constexpr double kLeapTimes = 4;     ///< update ratio over the largest of the window
constexpr double kSameGradient = 2;  ///< gradient norm over the largest of the window
constexpr double kSameRate = 1.2;
constexpr double kLost = 0.95;

/// Second moments that were there and are smaller by orders from one step to the next: they can only decay slowly.
bool second_lost(const Reading& reading, std::int64_t step) {
  for (const std::int32_t site : reading.sites(SiteRole::optimizer)) {
    const Series second = reading.series(site, &Health::second);
    const auto now = at(second, step);
    const Series usual = before(second, step, 3);
    if (now && !usual.empty() && usual.back().value > 0 && *now < kSecondLost * usual.back().value) return true;
  }
  return false;
}

/// The update leaps while gradient and learning rate are what they were: only the optimizer's memory can have changed.
bool leaps(const Reading& reading, const StepRow& row) {
  const Series update = before(reading.series(&StepRow::update_ratio), row.step, kLeapWindow);
  const Series gradient = before(reading.series(&StepRow::gradient_norm), row.step, kLeapWindow);
  const Series lr = before(reading.series(&StepRow::lr), row.step, kLeapWindow);
  if (update.size() < kHistory || gradient.empty() || lr.empty()) return false;
  return row.update_ratio > kLeapTimes * quantile(values_of(update), 1) &&
         row.gradient_norm < kSameGradient * quantile(values_of(gradient), 1) &&
         row.lr < kSameRate * quantile(values_of(lr), 1);
}

bool changed(const Reading& reading, const StepRow& row) {
  return row.reset_state || second_lost(reading, row.step) || leaps(reading, row);
}

double most(const Series& series) { return quantile(values_of(series), 1); }

/// What that step came to: updates and losses far above those before it.
std::optional<Hypothesis> after(const Reading& reading, const StepRow* row) {
  const Series loss = reading.series(&StepRow::loss);
  const Series update = reading.series(&StepRow::update_ratio);
  const Level usual = level(before(loss, row->step, kWindow));
  const Level step = level(before(update, row->step, kWindow));
  const Series later = between(loss, row->step + 1, row->step + 1 + kSteps);
  const Series moved = between(update, row->step, row->step + kSteps);
  if (usual.count < kHistory || later.empty() || moved.empty()) return std::nullopt;
  const Excess jump = excess(usual, most(later), kLeastSpread);
  const Excess size = excess(step, most(moved));
  if (jump.decades < std::log10(kLossTimes) || jump.z < kLossZ || size.decades < std::log10(kUpdateTimes))
    return std::nullopt;
  Hypothesis result;
  result.cause = "optimizer_state";
  result.confidence = kLost;
  result.step = row->step;
  result.onset_step = row->step;
  result.phase = "optimizer";
  const std::string at = std::to_string(row->step);
  result.description = "In step " + at +
                       " the optimizer began without the state of the steps before. Its first updates "
                       "are full-size ones in every direction, " +
                       brief(std::pow(10, size.decades)) + " times the ones before, and the loss jumped to " +
                       brief(most(later)) + " from " + brief(std::pow(10, usual.middle)) + ".";
  const char* seen = row->reset_state ? "the optimizer's state was missing when step "
                                      : "the optimizer's second moments were not those of the steps before when step ";
  result.evidence = {{row->step, "", seen + at + " began"},
                     {row->step, "",
                      "the size of the updates rose to " + brief(most(moved)) + " of the parameters, from " +
                          brief(std::pow(10, step.middle))},
                     {row->step, "loss",
                      "the loss rose to " + brief(most(later)) + " within " + std::to_string(kSteps) + " steps, from " +
                          brief(std::pow(10, usual.middle))}};
  result.advice = "save and load optimizer.state_dict() with the model, or warm the learning rate up again.";
  return result;
}

std::optional<Hypothesis> lost(const Reading& reading) {
  const Harm& harm = reading.harm();
  if (harm.kind == Harm::Kind::fault && !harm.grew) return std::nullopt;
  for (const StepRow* row : reading.rows()) {
    if (harm.grew && harm.step < row->step) break;
    if (!changed(reading, *row)) continue;
    if (auto result = after(reading, row)) return result;
  }
  return std::nullopt;
}

/// eps is 0, and the first value came out of the optimizer: 0/0 for whatever has had no gradient yet.
std::optional<Hypothesis> no_eps(const Reading& reading) {
  const Origin* origin = reading.culprit();
  if (origin == nullptr || origin->phase != Phase::optimizer || origin->cause == "hyperparameter") return std::nullopt;
  for (const OptimizerInfo& optimizer : reading.run().setup.optimizers) {
    for (const auto& group : optimizer.groups) {
      const auto eps = group.find("eps");
      if (eps == group.end() || eps->second != 0) continue;
      Hypothesis result = reading.about_culprit(*origin, kLost);
      result.cause = "optimizer_state";
      result.description =
          "The optimizer divides by sqrt(v) + eps with an eps of 0: where no gradient has come yet this "
          "is 0/0. " +
          result.description;
      result.advice = "give the optimizer an eps above 0, such as 1e-8.";
      return result;
    }
  }
  return std::nullopt;
}

std::optional<Hypothesis> judge(const Reading& reading) {
  if (auto known = observed(reading, "optimizer_state")) return known;
  if (auto known = no_eps(reading)) return known;
  return lost(reading);
}

std::string condition() {
  return "sqrt(v) + eps is 0 in the state's dtype (mechanism optimizer_denominator), or eps is; or the optimizer lost "
         "its state, or its second moments, or its update leaps " +
         brief(kLeapTimes) + " times above the " + std::to_string(kLeapWindow) +
         " steps before while gradient and learning rate do not, after which its updates are " + brief(kUpdateTimes) +
         " times larger and the loss " + brief(kLossTimes) + " times (robust z above " + brief(kLossZ) + ") within " +
         std::to_string(kSteps) + " steps";
}

}  // namespace

namespace list {
extern const Rule optimizer_state;
const Rule optimizer_state{
    .name = "optimizer_state",
    .symptom = "parameters turn NaN in the optimizer step; or the loss jumps when a run is resumed",
    .condition = condition,
    .evidence = "The operands of the optimizer's division; the steps that its state has seen.",
    .advice =
        "eps of 1e-4 or float32 master weights for half precision; save and load the "
        "optimizer's state with the model.",
    .source =
        "Kingma and Ba 2015: after bias correction a fresh Adam moves by about lr in every "
        "coordinate",
    .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
