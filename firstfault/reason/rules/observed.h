// What rules share whose cause is read off the operands of the first faulty op.
#pragma once

#include <optional>
#include <string_view>

#include "firstfault/reason/rules/reading.h"

namespace firstfault::reason {

/// Of the mechanisms' verdicts nearly all are right where nothing had grown before.
constexpr double kObserved = 0.95;

/// The culprit, where its mechanism stands for this cause.
std::optional<Hypothesis> observed(const Reading& reading, std::string_view cause);

}  // namespace firstfault::reason
