// Which changes to a step, or to a window of steps, would speak for a hypothesis.
#pragma once

#include <string_view>
#include <vector>

#include "firstfault/events/hypothesis.h"

namespace firstfault::reason {

/// Names of experiments (firstfault::experiment), each once; none for causes that no experiment is known for. Pure.
std::vector<std::string_view> changes_for(const std::vector<Hypothesis>& hypotheses);

}  // namespace firstfault::reason
