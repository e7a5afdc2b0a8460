// Names of custom functions, interned.
#include "firstfault/live/trace/forward_ops.h"

#include <algorithm>

namespace firstfault::trace {

std::int32_t ForwardOps::intern(const std::string& name) {
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found != names_.end()) return static_cast<std::int32_t>(found - names_.begin());
  if (names_.size() >= kMaxNames) return -1;
  names_.push_back(name);
  return static_cast<std::int32_t>(names_.size()) - 1;
}

}  // namespace firstfault::trace
