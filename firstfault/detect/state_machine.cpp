// Counts consecutive readings.
#include "firstfault/detect/state_machine.h"

#include <algorithm>

#include "firstfault/detect/thresholds.h"

namespace firstfault::detect {
namespace {

constexpr std::uint16_t kMost = 60000;

void count(std::uint16_t& counter, bool again) {
  counter = again ? static_cast<std::uint16_t>(std::min<int>(counter + 1, kMost)) : std::uint16_t{0};
}

int rank(Condition condition) {
  switch (condition) {
    case Condition::non_finite: return 0;
    case Condition::exploding: return 1;
    case Condition::dead: return 2;
    case Condition::saturated: return 3;
    case Condition::unstable: return 4;
    case Condition::spiking: return 5;
    case Condition::vanishing: return 6;
    default: break;  // those of clipping are not read here
  }
  return 7;
}

}  // namespace

bool StateMachine::entered(const Reading& reading) {
  std::uint16_t& over = over_[static_cast<std::size_t>(reading.condition)];
  count(over, reading.enter);
  return reading.enter && (reading.at_once || over >= reading.enter_steps);
}

std::optional<Change> StateMachine::update(std::span<const Reading> readings) {
  const Reading* worst = nullptr;
  const Reading* own = nullptr;
  for (const Reading& reading : readings) {
    const bool in = entered(reading);
    if (reading.condition == state_) {
      own = &reading;
    } else if (in && (!worst || rank(reading.condition) < rank(worst->condition))) {
      worst = &reading;
    }
  }
  if (own) count(calm_, !own->stay);
  const bool left = own && calm_ >= own->leave_steps;
  const bool entered_another = worst && (left || rank(worst->condition) < rank(state_));
  if (!left && !entered_another) return std::nullopt;
  const Condition before = state_;
  calm_ = 0;
  state_ = entered_another ? worst->condition : Condition::healthy;
  const Reading& decided = entered_another ? *worst : *own;
  const double confidence = entered_another ? decided.confidence : kRecovered;
  return Change{before, state_, decided.value, decided.baseline, confidence};
}

}  // namespace firstfault::detect
