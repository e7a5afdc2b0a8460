// What data_outlier and label_outlier share: one batch out of line, and the harm in the same step.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "firstfault/reason/rules/reading.h"

namespace firstfault::reason {

std::optional<Hypothesis> outlier_hypothesis(const Reading& reading, SiteRole role, std::string_view cause);
std::string outlier_condition(const char* what);

}  // namespace firstfault::reason
