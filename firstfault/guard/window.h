// What came of a window of steps that was run again with one thing changed.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "firstfault/events/experiment.h"

namespace firstfault::guard {

/// Steps that were run again.
struct WindowRun {
  /// In order; it ends with the first step that is not finite, whose loss is then NaN or Inf.
  std::vector<double> losses;
  /// Whether a watch over it had nothing to say; nullopt: it was not watched.
  std::optional<bool> healthy;
  bool nonfinite = false;  ///< it saw an op give NaN or Inf, whether or not that reached the loss
};

/// Whether its loss left its level: some loss is not finite or 100 times the median of the first three, or the last
/// quarter lies higher than three times them. Of one that was watched a peak from which it came back is none.
bool diverges(const WindowRun& window);

/// Whether a window shows what is to be cured: it diverges, or was watched and is not healthy.
bool shows_a_fault(const WindowRun& window);

/// `unchanged` shows a fault. Of a divergence `changed` is `cured` where it does not diverge, `delayed` where it went
/// further than `unchanged` before it left its level, else `failed`. Of another fault it is `cured` where besides it is
/// healthy, and, where the loss of `unchanged` did not fall by a tenth though all its ops were finite, ends at least
/// 2 % lower: a run that is finite, silent and learns nothing is not cured.
ExperimentOutcome judge_window(const WindowRun& unchanged, const WindowRun& changed);

}  // namespace firstfault::guard
