// Addresses of a native stack to source lines of the user's program.
#pragma once

#include <vector>

#include "firstfault/events/origin.h"

namespace firstfault::intercept {

/// Innermost first, inlined functions expanded. Frames inside LibTorch's, the C++ library's and this library's own
/// code are left out; where debug information or binutils are missing the function's name stands without a line.
/// Runs addr2line: up to a second. Never inside a callback.
std::vector<SourceFrame> symbolize(const std::vector<void*>& addresses);

}  // namespace firstfault::intercept
