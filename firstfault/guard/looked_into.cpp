#include "firstfault/guard/looked_into.h"

#include "firstfault/guard/limits.h"

namespace firstfault::guard {
namespace {

std::string what_began(std::string_view fault, const Origin* origin) {
  if (origin == nullptr) return std::string(fault);
  return origin->op + '\n' + origin->module + '\n' + origin->mechanism;
}

}  // namespace

bool LookedInto::wants(std::string_view fault, const Origin* origin) const {
  return wanted_ && fault != "spike" && steps_ < kMostLookedInto && !seen_.count(what_began(fault, origin));
}

void LookedInto::add(std::string_view fault, const Origin* origin) {
  ++steps_;
  seen_.insert(what_began(fault, origin));
}

bool LookedInto::may_search() { return replays_ && searches_++ < kMostSearches; }

}  // namespace firstfault::guard
