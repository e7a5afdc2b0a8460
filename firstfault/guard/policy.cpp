#include "firstfault/guard/policy.h"

#include <algorithm>

namespace firstfault::guard {

void Policy::healthy() {
  skips_ = 0;
  if (rollbacks_ > 0 && --to_make_good_ <= 0) rollbacks_ = 0;
}

Action Policy::faulty(const Situation& situation) {
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

}  // namespace firstfault::guard
