// The same facts as JSON (UTF-8, one object); the schema is docs/json.md.
#pragma once

#include <span>
#include <string>

#include "firstfault/record/run.h"

namespace firstfault::present {

/// `indent` < 0: one line. NaN and Inf, which JSON lacks, are the strings "nan", "inf", "-inf".
std::string to_json(const Origin& origin, int indent = -1);
std::string to_json(const Diagnosis& diagnosis, int indent = -1);
std::string to_json(const Run& run, int indent = -1);
std::string to_json(const Hypothesis& hypothesis, int indent = -1);
/// An "explanation": the verdict and the hypotheses.
std::string to_json(std::span<const Hypothesis> hypotheses, const Run& run, int indent = -1);
/// With the site's own fields beside its index.
std::string to_json(const Transition& transition, const Site& site, int indent = -1);
std::string to_json(const Evidence& evidence, int indent = -1);
std::string to_json(const Health& health, int indent = -1);
std::string to_json(const StepRow& row, int indent = -1);
std::string to_json(const Site& site, int indent = -1);
std::string to_json(const Fact& fact, int indent = -1);
std::string to_json(const GuardAction& action, int indent = -1);
std::string to_json(const Setup& setup, int indent = -1);

}  // namespace firstfault::present
