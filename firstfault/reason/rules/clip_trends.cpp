#include "firstfault/reason/rules/clip_trends.h"

#include <algorithm>

namespace firstfault::reason {
namespace {

std::string percent(double share) { return brief(100 * share) + " %"; }

std::string text_of(const Transition& trend, const std::string& parameter) {
  if (trend.to == Condition::dominant) return "'" + parameter + "' is behind most clips";
  const std::string now = percent(trend.value) + " of the newest 100 steps were clipped";
  if (trend.to == Condition::chronic) return now + ": the limit has become the learning rate";
  return now + ", where " + percent(trend.baseline) + " were at the beginning";
}

}  // namespace

ClipTrends clip_trends(const Run& run, std::int64_t step) {
  ClipTrends trends;
  const auto first = [](const Transition*& known, const Transition& one) {
    if (known == nullptr) known = &one;
    return known == &one;
  };
  for (const Transition& one : run.transitions) {
    const auto site = static_cast<std::size_t>(one.site);
    if (one.step > step || one.site < 0 || site >= run.sites.size() || run.sites[site].role != SiteRole::clipping)
      continue;
    if (one.to == Condition::chronic) first(trends.chronic, one);
    if (one.to == Condition::rising) first(trends.rising, one);
    if (one.to == Condition::dominant && first(trends.dominant, one)) trends.parameter = run.sites[site].name;
  }
  return trends;
}

std::vector<Evidence> evidence_of(const ClipTrends& trends) {
  std::vector<Evidence> found;
  for (const Transition* one : {trends.rising, trends.chronic, trends.any() ? trends.dominant : nullptr}) {
    if (one != nullptr) found.push_back({one->step, "", text_of(*one, trends.parameter)});
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  return found;
}

bool clips_speak_for(std::string_view cause) {
  constexpr std::string_view causes[] = {
      "lr_too_high",       "warmup_missing",    "exploding_gradient",        "data_scale", "bad_init",
      "missing_zero_grad", "weight_decay_sign", "accumulation_not_averaged", "divergence", "weight_growth",
      "overflow",          "mixed_precision",   "loss_not_decreasing",       "plateau",
  };
  return std::find(std::begin(causes), std::end(causes), cause) != std::end(causes);
}

}  // namespace firstfault::reason
