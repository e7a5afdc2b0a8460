// The same facts as JSON (UTF-8, one object); the schema is docs/json.md.
#pragma once

#include <string>

#include "firstfault/record/run.h"

namespace firstfault::present {

/// `indent` < 0: one line. NaN and Inf, which JSON lacks, are the strings "nan", "inf", "-inf".
std::string to_json(const Origin& origin, int indent = -1);
std::string to_json(const Diagnosis& diagnosis, int indent = -1);
std::string to_json(const Run& run, int indent = -1);

}  // namespace firstfault::present
