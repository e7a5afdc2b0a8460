// Which faulty steps of a run experiments are made on.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "firstfault/events/origin.h"

namespace firstfault::guard {

/// The first one, and later ones that began at another op, module or mechanism; at most kMostLookedInto. Not
/// thread-safe.
class LookedInto {
 public:
  /// `replays`: unchanged ones that are asked for. Without any there is nothing that an experiment could be told from.
  LookedInto(bool experiments, int replays) : wanted_(experiments && replays > 0), replays_(replays > 0) {}

  bool any() const noexcept { return wanted_; }  ///< whether any step ever is
  /// `fault`: as in GuardAction. A spike is finite: there is nothing to cure. `origin`: nullptr where it is not known.
  bool wants(std::string_view fault, const Origin* origin) const;
  void add(std::string_view fault, const Origin* origin);
  /// Whether a step whose origin is not known is run again for it alone; counts it. At most kMostSearches.
  bool may_search();

 private:
  bool wanted_, replays_;
  int steps_ = 0, searches_ = 0;
  std::set<std::string> seen_;
};

}  // namespace firstfault::guard
