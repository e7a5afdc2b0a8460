// A diagnosis as a paragraph a person wants to read first, then the path.
#pragma once

#include <string>

#include "firstfault/record/run.h"

namespace firstfault::present {

/// Control characters and terminal escapes in names come out escaped. `origin` should have been explained.
std::string to_text(const Origin& origin);
std::string to_text(const Diagnosis& diagnosis);
std::string to_text(const Run& run);

}  // namespace firstfault::present
