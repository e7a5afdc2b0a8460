// What came of a window of steps that was run again with one thing changed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "firstfault/events/experiment.h"

namespace firstfault::guard {

/// Steps that were run again.
struct WindowRun {
  /// In order, of the steps whose loss is known; it ends with the first step that is not finite.
  std::vector<double> losses;
  /// That a watch over it named; nullopt: it was not watched.
  std::optional<std::vector<std::string>> causes;
  bool nonfinite = false;   ///< it saw an op give NaN or Inf, whether or not that reached the loss
  bool threw = false;       ///< the program ended with an exception, whose step has a loss of NaN
  std::int64_t steps = -1;  ///< that were made; -1: as many as there are losses

  bool healthy() const noexcept { return causes && causes->empty() && !nonfinite; }
  std::int64_t made() const noexcept { return steps < 0 ? static_cast<std::int64_t>(losses.size()) : steps; }
};

/// Whether its loss left its level: some loss is not finite or 100 times the median of the first three, or the last
/// quarter lies higher than three times them. Of one that was watched a peak from which it came back is none.
bool diverges(const WindowRun& window);

/// Whether a window shows what is to be cured: it diverges, or was watched and is not healthy.
bool shows_a_fault(const WindowRun& window);

/// `unchanged` shows a fault. Of a divergence `changed` is `cured` where it does not diverge, `delayed` where it went
/// further than `unchanged` before it left its level, else `failed`. Of another fault it is `cured` where besides it is
/// healthy, and, where the loss of `unchanged` did not fall by a tenth though all its ops were finite, ends at least
/// 2 % lower: a run that is finite, silent and learns nothing is not cured. `threw` where the change made the program
/// end with an exception while its loss was at its level. `not_applicable` where it ended otherwise before so many
/// `steps`, and did not diverge; or where it learns, and shows faults that `unchanged` does not: then it says nothing.
ExperimentOutcome judge_window(const WindowRun& unchanged, const WindowRun& changed, std::int64_t steps);

}  // namespace firstfault::guard
