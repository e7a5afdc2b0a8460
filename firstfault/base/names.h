// Names of modules, parameters and files as they can be shown safely on a terminal.
#pragma once

#include <string>
#include <string_view>

namespace firstfault {

/// Names come from the user's program and from run files, so they are untrusted. Control characters (terminal escapes
/// among them), bidirectional overrides and line separators come out as \n, \x1b, \u202e; bytes that are not UTF-8 as
/// \xff. All else is unchanged. The result is always valid UTF-8 on one line.
std::string printable(std::string_view name);

}  // namespace firstfault
