#include "firstfault/guard/clip_trend.h"

#include <algorithm>
#include <map>
#include <utility>

namespace firstfault::guard {
namespace {

Fact fact_of(std::string detail, double share, double before) {
  Fact fact;
  fact.kind = FactKind::clip_trend;
  fact.detail = std::move(detail);
  fact.numbers = {{"share", share}, {"share_before", before}};
  return fact;
}

/// True when it begins.
bool begins(bool& state, bool now, bool stays) {
  const bool was = std::exchange(state, now || (state && stays));
  return state && !was;
}

}  // namespace

double ClipTrend::share() const {
  return newest_.empty() ? 0 : static_cast<double>(clips_) / static_cast<double>(newest_.size());
}

std::string ClipTrend::usual_parameter() const {
  if (clips_ < kLeastClips) return "";
  std::map<std::string, std::size_t> counts;
  for (const Step& step : newest_) {
    if (!step.parameter.empty()) ++counts[step.parameter];
  }
  const auto most =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const bool usual =
      most != counts.end() && static_cast<double>(most->second) >= kOneParameter * static_cast<double>(clips_);
  return usual ? most->first : "";
}

std::vector<Fact> ClipTrend::observe(const GuardAction& clip, bool clipped) {
  Step step{.clipped = clipped};
  constexpr double kMostOfIt = 0.5;
  if (clipped && clip.largest.size() > 1 && clip.largest.front().share > kMostOfIt) {
    step.parameter = clip.largest.front().name;
  }
  clips_ += clipped;
  newest_.push_back(std::move(step));
  if (newest_.size() > kWindow) {
    clips_ -= newest_.front().clipped;
    newest_.pop_front();
  }
  if (++steps_ == kWindow) early_ = share();
  std::vector<Fact> facts;
  const double now = share();
  const bool enough = steps_ >= kWindow;
  if (begins(chronic_, enough && now > kChronic, now > kChronic / 2)) facts.push_back(fact_of("chronic", now, early_));
  const bool risen = enough && now >= kLeastRisen && now > kRising * early_;
  if (begins(rising_, risen, risen)) facts.push_back(fact_of("rising", now, early_));
  if (std::string usual = usual_parameter(); usual != parameter_) {
    parameter_ = std::move(usual);
    if (!parameter_.empty()) facts.push_back(fact_of(parameter_, now, early_));
  }
  return facts;
}

}  // namespace firstfault::guard
