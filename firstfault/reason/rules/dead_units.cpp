// Units that give 0 for every sample: no gradient passes them, and they never come back.
#include <algorithm>
#include <cmath>
#include <string>

#include "firstfault/reason/rules/rule.h"

namespace firstfault::reason {
namespace {

constexpr double kDead = 0.9;       ///< fraction of channels silent for a whole window
constexpr std::size_t kSteps = 10;  ///< up to the end of the run
constexpr double kWholeLayer = 0.93;
constexpr double kMostOfIt = 0.7;
constexpr double kEffect = 0.5;  ///< of steps that had thrown the run off before
constexpr double kLargeUpdate = 0.1;
constexpr double kSolved = 0.05;  ///< last loss over the first: whatever is silent, the task is done

struct Dead {
  std::int32_t site = -1;
  std::int64_t since = 0;
  double share = 0;
  std::size_t steps = 0;
};

/// From which step on the layer gave nothing but 0, until the end.
std::optional<Dead> silent(const Reading& reading, std::int32_t site) {
  const Series zeros = reading.series(site, &Health::zeros);
  Dead dead{site, 0, 1, 0};
  for (auto point = zeros.rbegin(); point != zeros.rend() && point->value >= 1; ++point, ++dead.steps)
    dead.since = point->step;
  if (dead.steps >= kSteps) return dead;
  const Series share = reading.series(site, &Health::dead);
  dead = {site, 0, 1, 0};
  for (auto point = share.rbegin(); point != share.rend() && point->value >= kDead; ++point, ++dead.steps) {
    dead.since = point->step;
    dead.share = std::min(dead.share, point->value);
  }
  return dead.steps >= kSteps ? std::optional(dead) : std::nullopt;
}

std::optional<Dead> first_dead(const Reading& reading) {
  std::optional<Dead> first;
  for (const std::int32_t site : reading.sites(SiteRole::activation)) {
    if (reading.site(site).op.empty()) continue;
    const auto dead = silent(reading, site);
    if (dead && (!first || dead->since < first->since)) first = dead;
  }
  return first;
}

/// A layer of the model that is silent as a whole has lost what it knew, even where the loss fell on the way; a margin
/// loss at 0 is silent too, and has done its work.
bool harmful(const Reading& reading, const Dead& dead) {
  if (dead.share < 1 || reading.site(dead.site).module.empty()) return reading.learning() != Learning::improves;
  const Series loss = reading.series(&StepRow::loss);
  if (loss.size() < kSteps) return false;
  const double first = std::fabs(loss.front().value);
  const double last = std::fabs(median(values_of({loss.end() - static_cast<std::ptrdiff_t>(kSteps), loss.end()})));
  return last > kSolved * first;
}

std::string before_it(const Reading& reading, const Dead& dead) {
  const Series update = before(reading.series(&StepRow::update_ratio), dead.since, 3);
  if (update.empty()) return " It was so from the first step: the initialisation put every pre-activation below 0.";
  const double most = quantile(values_of(update), 1);
  if (most < kLargeUpdate) return "";
  return " Just before, one step moved the parameters by " + brief(most) + " of their own size.";
}

std::optional<Hypothesis> judge(const Reading& reading) {
  if (reading.harm().kind == Harm::Kind::fault) return std::nullopt;
  const auto dead = first_dead(reading);
  if (!dead || !harmful(reading, *dead)) return std::nullopt;
  const Site& site = reading.site(dead->site);
  Hypothesis result;
  result.cause = "dead_units";
  const Harm& harm = reading.harm();
  const bool effect = harm.grew && harm.onset < dead->since && harm.step <= dead->since;
  result.confidence = effect ? kEffect : dead->share >= 1 ? kWholeLayer : kMostOfIt;
  result.step = dead->since;
  result.onset_step = dead->since;
  result.phase = "backward";
  result.op = backward_name(site.op);
  result.forward_op = site.op;
  result.module = site.module;
  const std::string what = dead->share >= 1 ? "every unit" : brief(100 * dead->share) + " % of the units";
  const std::string since = " since step " + std::to_string(dead->since);
  result.description = "In " + name_of_site(site) + " " + what + " has given 0 for every sample" + since +
                       ", so no gradient passes it and what lies before it no longer learns." +
                       before_it(reading, *dead);
  result.evidence.push_back(
      {dead->since, name_of_site(site), what + " silent in " + std::to_string(dead->steps) + " steps" + since});
  result.advice = "a smaller learning rate, another initialisation, or LeakyReLU, GELU or softplus in this place.";
  return result;
}

std::string condition() {
  return "a nonlinearity gave 0 throughout, or in " + brief(100 * kDead) +
         " % of its channels for a whole window, in " + std::to_string(kSteps) +
         " steps up to the end, and the loss does not improve";
}

}  // namespace

namespace list {
extern const Rule dead_units;
const Rule dead_units{.name = "dead_units",
                      .symptom = "the prediction is a constant; gradients before one layer are exactly 0",
                      .condition = condition,
                      .evidence = "Zeros of the activation over samples and steps; the updates before it fell silent.",
                      .advice = "A smaller learning rate, another initialisation, or LeakyReLU.",
                      .source =
                          "AutoTrainer: 0.7 of the gradients 0; SageMaker Debugger: half of the units; here a whole "
                          "layer or nearly so, since sparse ReLU layers train well",
                      .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
