// Judges recorded origins (which mechanism fits the evidence, what it means, what to do) and whole runs: why they
// failed.
#pragma once

#include <vector>

#include "firstfault/events/hypothesis.h"
#include "firstfault/record/run.h"

namespace firstfault::reason {

/// Fills mechanism, cause, because and advice. The first mechanism of the ordered list that fits wins; where none
/// does, `mechanism` stays "" and `because` says what is known. Pure: no clock, no I/O; safe from any thread.
void explain(Origin& origin);
void explain(Run& run);
void explain(Diagnosis& diagnosis);

/// Why the run failed, best first; none for a healthy one. Origins that are not explained yet are explained on a copy.
/// One cause, one hypothesis: what follows from it is listed as its evidence. Pure, as above.
std::vector<Hypothesis> hypotheses(const Run& run);

}  // namespace firstfault::reason
