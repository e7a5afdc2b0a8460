// What rules share whose cause is read off the operands of the first faulty op.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "firstfault/reason/rules/reading.h"

namespace firstfault::reason {

/// Of the mechanisms' verdicts nearly all are right where nothing had grown before.
constexpr double kObserved = 0.95;

/// The culprit, where its mechanism stands for this cause.
std::optional<Hypothesis> observed(const Reading& reading, std::string_view cause);

/// Where a division by 0 says more than that: the divisor is a stored statistic of the data, or a number of the
/// program's own.
enum class Divisor : std::uint8_t { computed, statistic, setting };
Divisor divisor(const Origin& origin);

/// The value came in as a number of the program's, not as a tensor of data.
bool python_number(const Origin& origin);

}  // namespace firstfault::reason
