#include "firstfault/reason/rules/clip_trends.h"

#include <algorithm>

namespace firstfault::reason {
namespace {

std::string percent(const Fact& fact, const char* name) { return brief(100 * Reading::number(fact, name)) + " %"; }

std::string text_of(const Fact& fact) {
  const std::string now = percent(fact, "share") + " of the newest 100 steps were clipped";
  if (fact.detail == "chronic") return now + ": the limit has become the learning rate";
  if (fact.detail == "rising") return now + ", where " + percent(fact, "share_before") + " were at the beginning";
  return "'" + fact.detail + "' is behind most clips";
}

}  // namespace

ClipTrends clip_trends(const Run& run, std::int64_t step) {
  ClipTrends trends;
  for (const Fact& fact : run.facts) {
    if (fact.kind != FactKind::clip_trend || fact.first_step > step) continue;
    (fact.detail == "chronic" ? trends.chronic : fact.detail == "rising" ? trends.rising : trends.parameter) = &fact;
  }
  return trends;
}

std::vector<Evidence> evidence_of(const ClipTrends& trends) {
  std::vector<Evidence> found;
  for (const Fact* one : {trends.rising, trends.chronic, trends.any() ? trends.parameter : nullptr}) {
    if (one != nullptr) found.push_back({one->first_step, "", text_of(*one)});
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
