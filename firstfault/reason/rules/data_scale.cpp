// Features or targets that were never standardised: the loss surface is too steep for an ordinary step.
#include <cmath>

#include "firstfault/reason/rules/rule.h"

namespace firstfault::reason {
namespace {

constexpr double kLarge = 100;    ///< largest magnitude or rms of a tensor of the batch
constexpr double kColumns = 100;  ///< largest over smallest column
constexpr double kHuge = 1e3;     ///< rms: harmful even where the loss improves somewhat
constexpr double kLearnt = 0.5;   ///< last loss over first
constexpr double kLikely = 0.91;
constexpr double kOverflow = 1e8;  ///< values whose products overflow within a few layers

struct Scale {
  std::int32_t site = -1;
  double rms = 0, absmax = 0, columns = 0;
};

/// In the first step, before anything was learnt.
std::optional<Scale> wide(const Reading& reading) {
  std::optional<Scale> widest;
  for (const SiteRole role : {SiteRole::input, SiteRole::target}) {
    for (const std::int32_t site : reading.sites(role)) {
      if (!floating(reading.site(site))) continue;
      const Series rms = reading.series(site, &Health::rms);
      const Series absmax = reading.series(site, &Health::absmax);
      const Series columns = reading.series(site, &Health::columns);
      if (rms.empty() || absmax.empty()) continue;
      const Scale scale{site, rms.front().value, absmax.front().value, columns.empty() ? 1 : columns.front().value};
      const bool large = scale.rms >= kLarge || (scale.absmax >= kLarge && scale.columns >= kColumns);
      if (large && (!widest || scale.rms > widest->rms)) widest = scale;
    }
  }
  return widest;
}

std::string words(const Reading& reading, const Scale& scale) {
  const Site& site = reading.site(scale.site);
  std::string text = name_of_site(site) + " has an rms of " + brief(scale.rms) + " and reaches " + brief(scale.absmax);
  if (scale.columns >= kColumns) text += "; its largest column is " + brief(scale.columns) + " times its smallest";
  return text;
}

std::optional<Hypothesis> judge(const Reading& reading) {
  const Harm& harm = reading.harm();
  const auto scale = wide(reading);
  const bool at_once = harm.kind == Harm::Kind::fault && harm.step == 0 && scale && scale->absmax >= kOverflow;
  const Learning learning = reading.learning();
  const bool not_better = learning == Learning::flat || learning == Learning::worse;
  const bool little = scale && scale->rms >= kHuge && learning != Learning::unknown && reading.remaining() > kLearnt;
  const bool stuck = harm.kind == Harm::Kind::none && (not_better || little);
  if (!scale || !(harm.grew || at_once || stuck)) return std::nullopt;
  if (harm.grew && reading.rate_jump(harm.step)) return std::nullopt;
  Hypothesis result = reading.about_growth("data_scale", kLikely);
  if (stuck) result.step = 0;
  result.phase = "data";
  const bool target = reading.site(scale->site).role == SiteRole::target;
  const std::string text = words(reading, *scale);
  result.description = "The " + std::string(target ? "targets are" : "inputs are") + " not standardised: " + text +
                       ". Gradients are as many times larger, and a learning rate that would be ordinary overshoots.";
  result.evidence.insert(result.evidence.begin(), {0, name_of_site(reading.site(scale->site)), text});
  result.advice = target ? "scale the targets (log, or mean 0 and std 1) and undo it at prediction time."
                         : "standardise each feature to mean 0 and std 1; the same learning rate then converges.";
  return result;
}

std::string condition() {
  return "the run diverged or its loss does not improve, and in its first step a floating-point tensor of the batch "
         "has an rms of " +
         brief(kLarge) + " or more, or reaches " + brief(kLarge) + " with columns " + brief(kColumns) + " times apart";
}

}  // namespace

namespace list {
extern const Rule data_scale;
const Rule data_scale{.name = "data_scale",
                      .symptom = "divergence within the first steps; a much smaller learning rate only crawls",
                      .condition = condition,
                      .evidence = "Scale of inputs and targets and of their columns in the first step; the growth.",
                      .advice = "Standardise features and targets.",
                      .source =
                          "gradient descent needs a step below 2 / (largest eigenvalue), which grows with the "
                          "square of the inputs (LeCun et al. 1998)",
                      .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
