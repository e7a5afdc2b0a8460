// Which changes to a step, or to a window of steps, would speak for a hypothesis.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "firstfault/events/hypothesis.h"
#include "firstfault/record/run.h"

namespace firstfault::reason {

/// Names of experiments (firstfault::experiment), each once; none for causes that no experiment is known for. Pure.
std::vector<std::string_view> changes_for(const std::vector<Hypothesis>& hypotheses);

/// Of its hypotheses, best first. Pure.
std::vector<std::string> causes_of(const Run& run);

}  // namespace firstfault::reason
