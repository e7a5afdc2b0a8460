// What the clips of a run come to: one now and then is the exception that clipping is for, one a step is a learning
// rate.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "firstfault/events/fact.h"
#include "firstfault/events/guard_action.h"

namespace firstfault::guard {

/// Looks at the newest kWindow steps. Gives a fact once when something begins, and again only after it had ended (for
/// "chronic", below half of what it takes). Not thread-safe.
class ClipTrend {
 public:
  static constexpr std::size_t kWindow = 100;
  static constexpr double kChronic = 0.5;  ///< share of clipped steps
  static constexpr double kRising = 3;     ///< times the share of the run's first kWindow steps
  static constexpr double kLeastRisen = 0.2;
  static constexpr double kOneParameter = 0.8;  ///< of the clips; it has to hold more than half of the norm^p in them
  static constexpr std::size_t kLeastClips = 20;

  std::vector<Fact> observe(const GuardAction& clip, bool clipped);

 private:
  struct Step {
    bool clipped = false;
    std::string parameter;  ///< with more than half of the norm, where there are others; "" else
  };
  double share() const;
  std::string usual_parameter() const;

  std::deque<Step> newest_;
  std::size_t clips_ = 0;  ///< in newest_
  std::size_t steps_ = 0;
  double early_ = 0;
  bool chronic_ = false, rising_ = false;
  std::string parameter_;
};

}  // namespace firstfault::guard
