// What came of a window of steps that was run again with one thing changed.
#pragma once

#include <vector>

#include "firstfault/events/experiment.h"

namespace firstfault::guard {

/// From the losses of the steps, in order; a window ends with the first step that is not finite, whose loss is then NaN
/// or Inf. `unchanged` left its level or ended so. `changed` is `cured` where every loss is finite, none is 100 times
/// the median of its first three, and the last quarter lies no higher than three times them; `delayed` where it went
/// further than `unchanged` before it left; else `failed`.
ExperimentOutcome judge_window(const std::vector<double>& unchanged, const std::vector<double>& changed);

/// Whether a window left its level: then it shows what is to be cured.
bool left_its_level(const std::vector<double>& losses);

}  // namespace firstfault::guard
