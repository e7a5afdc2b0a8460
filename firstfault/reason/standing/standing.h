// What experiments make of hypotheses. All rules of precedence are here and in the table of experiments_of_causes.
#pragma once

#include <vector>

#include "firstfault/events/experiment.h"
#include "firstfault/events/hypothesis.h"

namespace firstfault::reason {

/// Gives each hypothesis about the step of the experiments its standing, a confidence to match, and a sentence of
/// evidence per experiment that speaks for or against it; adds a rival that cures as well and was not suspected; and
/// orders them: confirmed ones first, refuted ones last. Without experiments they come back as they were.
///
/// `confirmed`: every unchanged replay failed bit for bit, its own change cures, and no named rival's does. `located`:
/// only a change that says where cures: samples, another batch, an op whose name nothing supports. `not_separable`: a
/// rival's change cures too. `refuted`: its own change took effect and does not cure, which means: not enough alone.
/// `not_tested`: no own experiment could be made, or it needs a window of steps; the evidence names it.
/// Never evidence by itself: float64, gradient clipping, another batch, an earlier state.
std::vector<Hypothesis> judge_by_experiments(std::vector<Hypothesis> hypotheses,
                                             const std::vector<Experiment>& experiments);

}  // namespace firstfault::reason
