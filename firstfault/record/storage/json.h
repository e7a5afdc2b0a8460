// The parts of a run that the run file holds as JSON. What is written is read back exactly, but for bytes that are not
// UTF-8 (they become U+FFFD). NaN and Inf are the strings "nan", "inf", "-inf".
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "firstfault/events/guard_action.h"
#include "firstfault/events/origin.h"
#include "firstfault/events/setup.h"

namespace firstfault::record {

std::string to_json(const Origin& origin);
std::string to_json(const GuardAction& action);
std::string to_json(const Setup& setup);  ///< without its modules, which have a table
std::string to_json(const std::map<std::string, double>& numbers);
std::string to_json(const std::vector<std::int64_t>& shape);

/// Missing keys keep the default, unknown keys are left alone. Throws std::exception on what is no such JSON.
void from_json(std::string_view text, Origin& origin);
void from_json(std::string_view text, GuardAction& action);
void from_json(std::string_view text, Setup& setup);
void from_json(std::string_view text, std::map<std::string, double>& numbers);
void from_json(std::string_view text, std::vector<std::int64_t>& shape);

}  // namespace firstfault::record
