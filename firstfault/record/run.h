// Run: the read model. What the live half recorded, as a plain value; all that `reason` and `present` ever see.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "firstfault/events/fact.h"
#include "firstfault/events/guard_action.h"
#include "firstfault/events/hypothesis.h"
#include "firstfault/events/origin.h"
#include "firstfault/events/setup.h"
#include "firstfault/events/site.h"
#include "firstfault/events/step_row.h"
#include "firstfault/events/transition.h"

namespace firstfault {

/// What could not be looked at, so that silence is never taken for health.
struct Uninspected {
  std::string what;  ///< "dtype float8_e4m3fn", "layout sparse_coo", "device cuda", …
  std::int64_t tensors = 0;
};

enum class RunState : std::uint8_t { recording, died, complete };

constexpr std::string_view name_of(RunState state) noexcept {
  constexpr std::string_view names[] = {"recording", "died", "complete"};
  return names[static_cast<int>(state)];
}

struct Run {
  std::int64_t steps = 0;       ///< ended by an optimizer, and the open one once the model has run
  std::int64_t ops = 0;         ///< ops recorded
  std::vector<Origin> origins;  ///< faults first, in the order they happened; then swallowed; then notes
  std::vector<Uninspected> uninspected;
  std::vector<std::string> warnings;  ///< caps reached, the tool switched itself off and why, …

  // Of a watched run; empty after a Trace.
  RunState state = RunState::recording;
  Setup setup;
  std::vector<Site> sites;              ///< in the order in which they were first seen; only ever added to
  std::vector<StepRow> rows;            ///< by step, ascending; older ones are thinned out
  std::vector<Transition> transitions;  ///< by step
  std::vector<Fact> facts;
  std::vector<GuardAction> actions;  ///< of a guard, by step
};

/// Whether the program showed it in any step.
inline bool holds(const Run& run, FactKind kind) {
  return std::any_of(run.facts.begin(), run.facts.end(), [&](const Fact& fact) { return fact.kind == kind; });
}

/// The answer about one tensor.
struct Diagnosis {
  std::string target;  ///< "loss", "gradient of 'fc.weight'", "aten::sum output"
  std::vector<std::int64_t> shape;
  std::string dtype;
  Counts counts;                 ///< non-finite elements of the target; all 0: nothing is wrong with it
  std::int64_t ops = 0;          ///< ops recorded so far
  std::string note;              ///< why there is no answer: the tool is switched off, …; "" where there is one
  std::vector<Origin> culprits;  ///< independent origins, earliest first; each path ends at the target
};

}  // namespace firstfault
