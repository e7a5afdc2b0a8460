// Tests that several roles share. Internal; pure functions.
#pragma once

#include "firstfault/detect/baseline.h"
#include "firstfault/detect/detector.h"
#include "firstfault/detect/state_machine.h"

namespace firstfault::detect {

/// How sure one step is, by how far the weakest of its tests is passed: 0.59 at the threshold, 0.79 at twice, 0.94 at 8
/// times; 0.1 less where the site has no baseline yet. `margin`: value / threshold, above 1 where it is passed.
double confidence(double margin, bool has_baseline);
/// The same for a fraction that must be above `threshold`: an eighth more counts as twice.
double confidence_of_fraction(double fraction, double threshold, bool has_baseline);

Reading non_finite(std::int64_t elements);
/// `first_counts`: an enormous value is enough where there is none to compare with.
Reading exploding(double value, const Baseline& usual, double threshold, bool first_counts);
/// A decade above what is usual; `usual` may still be small.
Reading spiking_batch(double value, const Baseline& usual);

}  // namespace firstfault::detect
