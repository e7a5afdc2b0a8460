// What the clips of a run come to: one now and then is the exception that clipping is for, one a step is a learning
// rate.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <string>
#include <vector>

#include "firstfault/events/guard_action.h"
#include "firstfault/events/transition.h"

namespace firstfault::guard {

/// Of the clips of all parameters, or of those that one is behind.
struct ClipChange {
  std::string parameter;  ///< "": of all
  Transition transition;  ///< without a site; value: share of the newest steps that were clipped, or of the newest
                          ///< clips that are the parameter's; baseline: share of the run's first steps, NaN before
};

/// Looks at the newest kWindow steps. States of all clips: healthy, rising, chronic; of one parameter's: healthy,
/// dominant. Not thread-safe.
class ClipTrend {
 public:
  static constexpr std::size_t kWindow = 100;
  static constexpr double kChronic = 0.5;  ///< share of clipped steps
  static constexpr double kRising = 3;     ///< times the share of the run's first kWindow steps
  static constexpr double kLeastRisen = 0.2;
  static constexpr double kOneParameter = 0.8;  ///< of the clips; it has to hold more than half of the norm^p in them
  static constexpr std::size_t kLeastClips = 20;
  static constexpr double kStays = 0.5;  ///< a state ends below that part of what it took

  std::vector<ClipChange> observe(const GuardAction& clip, bool clipped);

 private:
  struct Step {
    bool clipped = false;
    std::string parameter;  ///< with more than half of the norm, where there are others; "" else
  };
  double share() const;
  Condition condition() const;
  double part_of(const std::string& parameter) const;
  std::string dominant() const;

  std::deque<Step> newest_;
  std::size_t clips_ = 0;  ///< in newest_
  std::size_t steps_ = 0;
  double early_ = std::numeric_limits<double>::quiet_NaN();
  Condition state_ = Condition::healthy;
  bool falling_ = false;  ///< it was chronic: what is left of it does not rise
  std::string dominant_;
};

}  // namespace firstfault::guard
