// What the files that write text share. Internal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "firstfault/record/run.h"

namespace firstfault::present {

/// "  label      text\n"; "" where there is no text.
std::string line(std::string_view label, const std::string& text);
/// "1 step", "1,000 steps"
std::string plural(std::int64_t count, std::string_view noun);
std::string short_number(double value);
std::string without_last_newline(std::string text);

std::vector<const Origin*> with(const Run& run, Outcome outcome);
/// "\nFault 1 of 2\n  …" for each.
std::string numbered(std::string_view label, const std::vector<const Origin*>& origins);
/// Uninspected tensors and warnings, a line each after an empty one; "" for none.
std::string what_was_missed(const Run& run);

/// What a guard did, under "guard"; "" for nothing.
std::string action_lines(const Run& run);

/// A Run of Watch: it has sites or rows, where that of a Trace has none.
bool watched(const Run& run);
/// Of a watched run.
std::string summary_of(const Run& run);

}  // namespace firstfault::present
