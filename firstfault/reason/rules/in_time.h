// The gradient of recurrent layers from time step to time step, on its way back: what rules read of the facts about it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "firstfault/events/hypothesis.h"
#include "firstfault/record/run.h"

namespace firstfault::reason {

constexpr double kFallsInTime = 0.9;    ///< factor per time step
constexpr double kGrowsInTimeTo = 70;   ///< over all time steps; as by depth (AutoTrainer)
constexpr double kFollowsInTime = 0.5;  ///< R2 of the fit

struct InTime {
  const Fact* fact = nullptr;
  double lambda = 1;  ///< factor per time step
  double steps = 0;   ///< of time

  double total() const;
  /// "the gradient of 'model.rnn' falls by a factor of 0.62 per time step on its way back over 60 time steps".
  std::string in_words() const;
};

/// The layer whose gradient falls most, to less than `total`, in its first observation and in its last.
std::optional<InTime> falls_in_time(const Run& run, double total);

/// The layer whose gradient has grown most, by kGrowsInTimeTo or more.
std::optional<InTime> grows_in_time(const Run& run);

/// Says so where there is one.
void add_growth_in_time(const Run& run, std::vector<Evidence>& into);

}  // namespace firstfault::reason
