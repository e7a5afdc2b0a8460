// Units at the flat ends of tanh or sigmoid: next to no gradient passes them.
#include <algorithm>
#include <cmath>

#include "firstfault/reason/rules/rule.h"

namespace firstfault::reason {
namespace {

constexpr double kSaturated = 0.5;    ///< fraction of the layer's elements at a flat end
constexpr std::size_t kSteps = 10;    ///< up to the end
constexpr double kThroughout = 0.65;  ///< fraction at a flat end in every step
constexpr double kLearnt = 0.3;       ///< last loss over first
constexpr double kLikely = 0.91;
constexpr double kLargeInput = 100;

struct Flat {
  std::int32_t site = -1;
  std::int64_t since = 0;
  double share = 0;
  bool from_start = false;
};

std::optional<Flat> flat(const Reading& reading, std::int32_t site) {
  const Series saturated = reading.series(site, &Health::saturated);
  Flat result{site, 0, 1, false};
  std::size_t steps = 0;
  for (auto point = saturated.rbegin(); point != saturated.rend() && point->value > kSaturated; ++point, ++steps) {
    result.since = point->step;
    result.share = std::min(result.share, point->value);
  }
  if (steps < kSteps) return std::nullopt;
  result.from_start = steps == saturated.size();
  return result;
}

/// Then the scale of the data is the cause, and the saturation its effect.
bool large_inputs(const Reading& reading) {
  for (const std::int32_t site : reading.sites(SiteRole::input)) {
    const Series rms = reading.series(site, &Health::rms);
    if (floating(reading.site(site)) && !rms.empty() && rms.front().value >= kLargeInput) return true;
  }
  return false;
}

/// Layers that are flat nearly throughout from the first step hold back even a run that learns something.
bool harmful(const Reading& reading, const Flat& flat) {
  if (reading.learning() != Learning::improves) return true;
  return flat.from_start && flat.share >= kThroughout && reading.remaining() > kLearnt;
}

std::string why(const Reading& reading, const Flat& first) {
  if (first.from_start) {
    return " It was so from the first step: weights or inputs are too large for it.";
  }
  const Series update = before(reading.series(&StepRow::update_ratio), first.since, 5);
  if (update.empty()) return "";
  return " In the steps before, an update moved the parameters by up to " + brief(quantile(values_of(update), 1)) +
         " of their own size.";
}

std::optional<Hypothesis> judge(const Reading& reading) {
  if (reading.harm().kind == Harm::Kind::fault || reading.learning() == Learning::unknown) return std::nullopt;
  if (large_inputs(reading)) return std::nullopt;
  std::optional<Flat> first;
  for (const std::int32_t site : reading.sites(SiteRole::activation)) {
    const std::string& op = reading.site(site).op;
    if (op.empty() || op.find("softmax") != std::string::npos) continue;  // sharp answers, sharp attention
    const auto found = flat(reading, site);
    const bool earlier =
        found && (!first || found->since < first->since ||
                  (found->since == first->since && reading.site(site).order < reading.site(first->site).order));
    if (earlier) first = found;
  }
  if (!first || !harmful(reading, *first)) return std::nullopt;
  const Site& site = reading.site(first->site);
  Hypothesis result;
  result.cause = "saturation";
  result.confidence = kLikely;
  result.step = first->since;
  result.onset_step = first->since;
  result.phase = "forward";
  result.op = site.op;
  result.module = site.module;
  result.description = brief(100 * first->share) + " % or more of " + name_of_site(site) +
                       " sits at a flat end of the nonlinearity since step " + std::to_string(first->since) +
                       ", where its derivative is next to 0, and the loss does not improve." + why(reading, *first);
  result.evidence.push_back(
      {first->since, name_of_site(site), "saturated fraction " + brief(first->share) + " and more"});
  result.advice =
      "scale the inputs, use smaller initial weights or learning rate, normalise before the nonlinearity, or "
      "use ReLU or GELU.";
  return result;
}

std::string condition() {
  return "more than " + brief(kSaturated) +
         " of a layer's outputs beyond +-0.97 (tanh), below 0.03 or above 0.97 "
         "(sigmoid) in the last " +
         std::to_string(kSteps) + " steps or longer, and the loss does not improve";
}

}  // namespace

namespace list {
extern const Rule saturation;
const Rule saturation{
    .name = "saturation",
    .symptom = "tanh or sigmoid layers answer only their extremes; learning stops",
    .condition = condition,
    .evidence =
        "Fraction of the activation at its flat ends; whether it was so from the start, and the "
        "updates before.",
    .advice = "Scale the inputs, smaller weights or learning rate, normalisation, ReLU or GELU.",
    .source = "derivative below 0.06 of its largest there; SageMaker Debugger counts half of the units",
    .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
