// The first steps of an adaptive optimizer, at the full learning rate, moved a normalised network where it no longer
// looks at its input.
#include <algorithm>
#include <string>

#include "firstfault/reason/rules/collapse.h"
#include "firstfault/reason/rules/rule.h"

namespace firstfault::reason {
namespace {

constexpr std::int64_t kEarly = 100;    ///< steps within which it must happen: warm-ups are this long or longer
constexpr double kFullRate = 0.5;       ///< learning rate of the first step over the largest one
constexpr double kFirstUpdate = 0.003;  ///< rms of the first steps over rms of the parameters: 1e-3 is ordinary
constexpr double kSettled = 0.5;        ///< later steps are smaller than this share of the first ones
constexpr double kLikely = 0.88;

bool adaptive(const Reading& reading) {
  const auto& optimizers = reading.run().setup.optimizers;
  return std::any_of(optimizers.begin(), optimizers.end(), [](const OptimizerInfo& one) {
    return one.type.find("Ada") != std::string::npos || one.type.find("Adam") != std::string::npos ||
           one.type.find("RMSprop") != std::string::npos || one.type.find("Lion") != std::string::npos;
  });
}

bool normalised(const Reading& reading) {
  const auto& modules = reading.run().setup.modules;
  return std::any_of(modules.begin(), modules.end(), [](const ModuleInfo& one) {
    return one.type.find("Norm") != std::string::npos || one.type.find("Transformer") != std::string::npos ||
           one.type.find("Attention") != std::string::npos;
  });
}

bool at_full_rate(const Reading& reading) {
  const Series lr = reading.series(&StepRow::lr);
  return !lr.empty() && lr.front().value >= kFullRate * quantile(values_of(lr), 1);
}

std::optional<Hypothesis> judge(const Reading& reading) {
  if (reading.harm().kind != Harm::Kind::none || !adaptive(reading) || !normalised(reading)) return std::nullopt;
  const auto collapse = output_collapse(reading);
  if (!collapse || collapse->step > kEarly || !at_full_rate(reading)) return std::nullopt;
  const Series update = reading.series(&StepRow::update_ratio);
  if (update.size() < 10) return std::nullopt;
  const double first = quantile(values_of(between(update, 0, 5)), 1);
  const double later = median(values_of({update.end() - static_cast<std::ptrdiff_t>(update.size() / 2), update.end()}));
  if (!(first >= kFirstUpdate) || later > kSettled * first) return std::nullopt;
  Hypothesis result;
  result.cause = "warmup_missing";
  result.confidence = kLikely;
  result.step = collapse->step;
  result.onset_step = 0;
  result.phase = "optimizer";
  result.module = collapse->module;
  result.description =
      "The first steps, at the full learning rate, moved the parameters by up to " + brief(first) +
      " of their own size each. By step " + std::to_string(collapse->step) +
      " the output no longer depends on the input, and the loss stays where it was. Later steps are small (" +
      brief(later) + "): the same learning rate would serve once the optimizer's averages have filled.";
  result.evidence = collapse->evidence;
  result.evidence.insert(
      result.evidence.begin(),
      {0, "", "update ratio up to " + brief(first) + " in the first 5 steps, " + brief(later) + " later"});
  result.advice =
      "warm the learning rate up from 0 over the first 100 steps or more, or normalise before the residual "
      "branch (pre-LN).";
  return result;
}

std::string condition() {
  return "an adaptive optimizer and normalisation layers; the learning rate starts at " + brief(kFullRate) +
         " of its largest or more; an update ratio of " + brief(kFirstUpdate) +
         " in the first steps, later less than " + brief(kSettled) + " of that; within " + std::to_string(kEarly) +
         " steps " + collapse_condition();
}

}  // namespace

namespace list {
extern const Rule warmup_missing;
const Rule warmup_missing{.name = "warmup_missing",
                          .symptom = "a transformer whose loss stays at that of a guess from the first steps on",
                          .condition = condition,
                          .evidence =
                              "Learning rate and update ratio of the first steps; how much the outputs differ "
                              "between samples.",
                          .advice = "Warm the learning rate up over the first 100 steps or more, or use pre-LN.",
                          .source =
                              "Xiong et al. 2020 (post-LN needs warm-up); Liu et al. 2020 (variance of Adam's "
                              "first steps)",
                          .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
