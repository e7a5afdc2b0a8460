#include "firstfault/record/limits.h"

#include "firstfault/base/numbers.h"

namespace firstfault::record {
namespace {

struct Limit {
  std::int64_t most;
  const char* name;
};

constexpr Limit kLimits[] = {
    {kMaxSites, "places to measure"}, {kMaxTransitions, "transitions"}, {kMaxFacts, "facts"},
    {kMaxOrigins, "origins"},         {kMaxWarnings, "warnings"},       {kMaxActions, "actions of the guard"}};

}  // namespace

bool Limits::admit(Kind kind) {
  const auto index = static_cast<std::size_t>(kind);
  const Limit& limit = kLimits[index];
  if (++counts_[index] <= limit.most) return true;
  if (counts_[index] == limit.most + 1) {
    warning_ = "There are more than " + show_count(limit.most) + " " + limit.name + ": later ones are left out.";
  }
  return false;
}

std::optional<std::string> Limits::take_warning() {
  std::optional<std::string> warning;
  warning.swap(warning_);
  return warning;
}

}  // namespace firstfault::record
