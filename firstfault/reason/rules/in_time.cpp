#include "firstfault/reason/rules/in_time.h"

#include <algorithm>
#include <cmath>

#include "firstfault/base/numbers.h"
#include "firstfault/reason/rules/reading.h"

namespace firstfault::reason {
namespace {

InTime of(const Fact& fact, const char* lambda) {
  return {&fact, Reading::number(fact, lambda), Reading::number(fact, "steps")};
}

}  // namespace

double InTime::total() const { return std::pow(lambda, steps - 1); }

std::string InTime::in_words() const {
  const std::string& name = fact->module.empty() ? fact->detail : fact->module;
  const std::string change = lambda < 1 ? "falls" : "grows";
  return "the gradient of '" + name + "' " + change + " by a factor of " + brief(lambda) +
         " per time step on its way back over " + show_number(steps) + " time steps";
}

std::optional<InTime> falls_in_time(const Run& run, double total) {
  std::optional<InTime> most;
  for (const Fact& fact : run.facts) {
    if (fact.kind != FactKind::growth_in_time) continue;
    const InTime now = of(fact, "lambda");
    const double highest = std::max(now.lambda, of(fact, "lambda_first").lambda);
    const bool falls = highest <= kFallsInTime && std::pow(highest, now.steps - 1) < total;
    if (!falls || !(Reading::number(fact, "fit") >= kFollowsInTime)) continue;
    if (!most || now.total() < most->total()) most = now;
  }
  return most;
}

std::optional<InTime> grows_in_time(const Run& run) {
  std::optional<InTime> most;
  for (const Fact& fact : run.facts) {
    if (fact.kind != FactKind::growth_in_time) continue;
    const InTime then = of(fact, "lambda_most");
    if (then.total() >= kGrowsInTimeTo && (!most || then.total() > most->total())) most = then;
  }
  return most;
}

void add_growth_in_time(const Run& run, std::vector<Evidence>& into) {
  if (const auto growth = grows_in_time(run))
    into.push_back({growth->fact->first_step, growth->fact->module,
                    growth->in_words() + ", to " + brief(growth->total()) + " times"});
}

}  // namespace firstfault::reason
