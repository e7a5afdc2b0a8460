// Judges recorded origins: which mechanism fits the evidence, what it means, what to do.
#pragma once

#include "firstfault/record/run.h"

namespace firstfault::reason {

/// Fills mechanism, cause, because and advice. The first mechanism of the ordered list that fits wins; where none
/// does, `mechanism` stays "" and `because` says what is known. Pure: no clock, no I/O; safe from any thread.
void explain(Origin& origin);
void explain(Run& run);
void explain(Diagnosis& diagnosis);

}  // namespace firstfault::reason
