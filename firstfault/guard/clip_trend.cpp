#include "firstfault/guard/clip_trend.h"

#include <algorithm>
#include <utility>

namespace firstfault::guard {
namespace {

constexpr double kCounted = 1;  // these are counts, nothing is inferred

}  // namespace

double ClipTrend::share() const {
  return newest_.empty() ? 0 : static_cast<double>(clips_) / static_cast<double>(newest_.size());
}

Condition ClipTrend::condition() const {
  const double now = share();
  const auto needed = [&](double least, Condition condition) { return state_ == condition ? kStays * least : least; };
  if (steps_ < kWindow) return Condition::healthy;
  if (now > needed(kChronic, Condition::chronic)) return Condition::chronic;
  const double risen = std::max(kLeastRisen, kRising * early_);
  return now >= needed(risen, Condition::rising) ? Condition::rising : Condition::healthy;
}

double ClipTrend::part_of(const std::string& parameter) const {
  const auto theirs = [&](const Step& step) { return step.parameter == parameter; };
  const auto count = std::count_if(newest_.begin(), newest_.end(), theirs);
  return clips_ == 0 ? 0 : static_cast<double>(count) / static_cast<double>(clips_);
}

std::string ClipTrend::dominant() const {
  const bool any = static_cast<double>(clips_) >= kStays * static_cast<double>(kLeastClips);
  if (any && !dominant_.empty() && part_of(dominant_) >= kStays * kOneParameter) return dominant_;
  if (clips_ < kLeastClips) return "";
  const std::string* most = nullptr;  // where one has more than half of them, each other name takes one of its votes
  std::size_t votes = 0;
  for (const Step& step : newest_) {
    if (!step.clipped) continue;
    if (votes == 0) most = &step.parameter;
    votes = *most == step.parameter ? votes + 1 : votes - 1;
  }
  return most && !most->empty() && part_of(*most) >= kOneParameter ? *most : "";
}

std::vector<ClipChange> ClipTrend::observe(const GuardAction& clip, bool clipped) {
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
  std::vector<ClipChange> changes;
  const auto turned = [&](const std::string& parameter, Condition from, Condition to, double value) {
    changes.push_back({parameter, {clip.step, -1, from, to, value, early_, kCounted}});
  };
  Condition now = condition();
  falling_ = (falling_ || (state_ == Condition::chronic && now != state_)) && share() >= kStays * kLeastRisen;
  if (falling_ && now == Condition::rising) now = Condition::healthy;
  if (now != state_) turned("", std::exchange(state_, now), now, share());
  const std::string parameter = dominant();
  if (parameter == dominant_) return changes;
  if (!dominant_.empty()) turned(dominant_, Condition::dominant, Condition::healthy, part_of(dominant_));
  if (!parameter.empty()) turned(parameter, Condition::healthy, Condition::dominant, part_of(parameter));
  dominant_ = parameter;
  return changes;
}

}  // namespace firstfault::guard
