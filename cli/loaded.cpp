#include "cli/loaded.h"

#include <fmt/format.h>

#include "firstfault/base/names.h"
#include "firstfault/present/causes.h"
#include "firstfault/reason/engine.h"
#include "firstfault/reason/rules/reading.h"
#include "firstfault/record/read_run.h"

namespace firstfault::cli {
namespace {

/// One step that the run got over, or that a replay cleared: no failure.
bool is_note(const Hypothesis& hypothesis) {
  return hypothesis.cause == "loss_spike" || hypothesis.cause == "healthy" || hypothesis.standing == Standing::refuted;
}

bool nothing_recorded(const Run& run) { return run.rows.empty() && run.origins.empty() && run.transitions.empty(); }

/// A fault that no rule has a cause for.
std::int64_t step_of_harm(const Run& run) {
  const reason::Reading reading(run);
  return reading.harm().kind == reason::Harm::Kind::none ? -1 : reading.harm().step;
}

}  // namespace

Loaded load(const std::string& path) {
  Loaded loaded;
  loaded.path = path;
  loaded.run = read_run(path);
  reason::explain(loaded.run);
  loaded.hypotheses = reason::hypotheses(loaded.run);
  loaded.verdict = judge(loaded.run, loaded.hypotheses);
  return loaded;
}

Verdict judge(const Run& run, const std::vector<Hypothesis>& hypotheses) {
  for (const Hypothesis& one : hypotheses)
    if (!is_note(one)) return {Verdict::Kind::fault, one.cause, one.confidence, one.step};
  if (const std::int64_t step = step_of_harm(run); step >= 0) return {Verdict::Kind::fault, "", 0, step};
  return {nothing_recorded(run) ? Verdict::Kind::nothing_recorded : Verdict::Kind::healthy, "", 0, -1};
}

const char* name_of(Verdict::Kind kind) {
  switch (kind) {
    case Verdict::Kind::healthy: return "healthy";
    case Verdict::Kind::fault: return "fault";
    case Verdict::Kind::nothing_recorded: return "nothing_recorded";
  }
  return "";
}

std::string to_text(const Verdict& verdict) {
  if (verdict.kind == Verdict::Kind::healthy) return "no fault found";
  if (verdict.kind == Verdict::Kind::nothing_recorded) return "no step to judge by";
  if (verdict.cause.empty()) return fmt::format("fault in step {}, and no cause found", verdict.step);
  return fmt::format("fault in step {}: {} [{}], confidence {:.2f}", verdict.step,
                     present::words_for_cause(verdict.cause), printable(verdict.cause), verdict.confidence);
}

void write_warnings(const Run& run, const Context& context) {
  for (const std::string& warning : run.warnings) context.err << "firstfault: warning: " << printable(warning) << "\n";
}

}  // namespace firstfault::cli
