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
  return wanted_ && fault != "spike" && seen_.size() < kMostLookedInto && !seen_.count(what_began(fault, origin));
}

void LookedInto::add(std::string_view fault, const Origin* origin) { seen_.insert(what_began(fault, origin)); }

}  // namespace firstfault::guard
