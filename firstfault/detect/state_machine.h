// Hysteresis: which condition a site is in, from what each condition's test says step by step.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "firstfault/events/transition.h"

namespace firstfault::detect {

/// What one step says about one condition of a site.
struct Reading {
  Condition condition = Condition::healthy;
  bool enter = false;    ///< over the threshold to enter
  bool stay = false;     ///< over the (lower) threshold to leave; true wherever `enter` is
  bool at_once = false;  ///< so far over that one step is enough
  int enter_steps = 1;   ///< consecutive readings over `enter` that it takes otherwise
  int leave_steps = 5;   ///< consecutive readings not over `stay` that it takes to leave
  double value = 0;
  double baseline = std::numeric_limits<double>::quiet_NaN();
  double confidence = 0;
};

struct Change {
  Condition from = Condition::healthy;
  Condition to = Condition::healthy;
  double value = 0;  ///< of the reading that decided; on recovery, of the condition that was left
  double baseline = std::numeric_limits<double>::quiet_NaN();
  double confidence = 0;  ///< of that reading; 0.9 on recovery
};

/// One per site. Pure: no clock; a step in which the site was not measured is simply not given.
class StateMachine {
 public:
  /// Each condition at most once; one that is left out was not measured in this step and its counts stand still. From
  /// the worst: non_finite, exploding, dead, saturated, unstable, spiking, vanishing. A worse condition takes over at
  /// once, a lesser one only when the worse has been left.
  std::optional<Change> update(std::span<const Reading> readings);

  Condition state() const noexcept { return state_; }

 private:
  static constexpr std::size_t kConditions = 8;

  bool entered(const Reading& reading);

  Condition state_ = Condition::healthy;
  std::uint16_t calm_ = 0;                         // consecutive readings of state_ that were not over `stay`
  std::array<std::uint16_t, kConditions> over_{};  // consecutive readings over `enter`
};

}  // namespace firstfault::detect
