// Finds what went wrong first: a non-finite value, or growth that did not come back.
#pragma once

#include "firstfault/reason/rules/reading.h"

namespace firstfault::reason {

// Growth before a fault, by which the fault counts as an effect. A point fault strikes a run whose last steps looked
// like the ones before; a divergence multiplies loss and gradient from step to step while the optimizer moves the
// parameters by much of themselves.
constexpr double kGrownTimes = 10;      ///< loss or gradient norm over its own level
constexpr double kMovedRatio = 0.5;     ///< rms of a step over rms of the parameters, within the last steps
constexpr double kRunawayTimes = 1e3;   ///< loss and gradient both: growth whatever the update was
constexpr double kParametersTimes = 3;  ///< parameter norm over its own level
constexpr double kUnstableRatio = 0.1;  ///< rms of a step over rms of the parameters: beyond ordinary training
constexpr std::size_t kLastSteps = 3;

/// A step that changed nothing: left out, or made by a fused optimizer that was told of the overflow.
bool passed_over(const StepRow& row);

/// Steps of a GradScaler whose scale was too high: overflow in the backward alone, skipped, and nothing lost.
bool benign_skip(const Run& run, const Origin& origin);

Harm find_harm(const Run& run, const std::vector<const StepRow*>& rows);

}  // namespace firstfault::reason
