// The program on stdout and stderr, as `main` and the Python package run it.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace firstfault::cli {

/// Colour where stdout is a terminal, unless NO_COLOR is set or TERM is "dumb". The exit code.
int run_on_standard_output(const std::vector<std::string>& arguments, const Python& python = {});

}  // namespace firstfault::cli
