#include "firstfault/guard/policy.h"

#include <algorithm>

namespace firstfault::guard {

void Policy::healthy() {
  skips_ = 0;
  if (rollbacks_ > 0 && --to_make_good_ <= 0) rollbacks_ = 0;
}

Measure Policy::faulty(const Situation& situation) {
  Measure measure{.action = decide(situation)};
  const bool undoes = situation.written && measure.action != Action::warn;
  measure.goes_back = measure.action == Action::rollback || (undoes && !situation.can_undo && situation.has_snapshot);
  if (undoes) measure.undone = measure.goes_back ? "snapshot" : situation.can_undo ? "copy" : "";
  return measure;
}

Action Policy::decide(const Situation& situation) {
  switch (options_.on_fault) {
    case OnFault::raise: return Action::stop;
    case OnFault::warn: return Action::warn;
    case OnFault::rollback: return roll_back(situation);
    case OnFault::skip: return skip(situation);
  }
  return Action::stop;
}

Action Policy::skip(const Situation& situation) {
  if (situation.written && !situation.can_undo) return roll_back(situation);
  if (skips_ < options_.max_consecutive_skips) {
    ++skips_;
    return Action::skip;
  }
  return options_.after_skips == OnFault::rollback ? roll_back(situation) : Action::stop;
}

Action Policy::roll_back(const Situation& situation) {
  if (!situation.has_snapshot || rollbacks_ >= options_.max_rollbacks) return Action::stop;
  ++rollbacks_;
  skips_ = 0;
  to_make_good_ = std::max<std::int64_t>(to_make_good_, situation.would_lose + 1);
  return Action::rollback;
}

std::optional<std::size_t> Policy::snapshot_to_use(std::size_t snapshots) const {
  if (snapshots == 0) return {};
  return snapshots - (rollbacks_ > 0 && snapshots > 1 ? 2 : 1);
}

std::string Policy::why_stopped(const Situation& situation) const {
  if (options_.on_fault == OnFault::raise) return "";
  if (skips_ == 1) return ", after a step was skipped";
  if (skips_ > 1) return ", after " + std::to_string(skips_) + " steps in a row were skipped";
  if (rollbacks_ == 1) return ", after a rollback that led to the same place";
  if (rollbacks_ > 1) return ", after " + std::to_string(rollbacks_) + " rollbacks that led to the same place";
  const bool needs_snapshot = situation.written || options_.on_fault == OnFault::rollback;
  return needs_snapshot ? ", and there is no snapshot to roll back to" : "";
}

}  // namespace firstfault::guard
