// Python's view of events/experiment.h, and of what came of a window of steps.
#include "firstfault/events/experiment.h"

#include <nanobind/stl/pair.h>

#include <optional>
#include <utility>

#include "firstfault/guard/prove.h"
#include "firstfault/reason/changes.h"
#include "firstfault/record/run.h"
#include "python/src/core_types.h"

namespace firstfault::python {
namespace {

// run(name, divisor, warm_up, steps, watched) gives (losses, whether the program threw, what the watch recorded or
// None), or None where that change cannot be made; name "" for none.
class CalledProgram final : public guard::WindowProgram {
 public:
  explicit CalledProgram(nb::callable run) : run_(std::move(run)) {}

  std::optional<guard::WindowRun> run(const guard::WindowChange* change, std::int64_t steps, bool watched) override {
    const guard::WindowChange none;
    const guard::WindowChange& given = change ? *change : none;
    const nb::object made = run_(std::string(given.name), given.divisor, given.warm_up, steps, watched);
    if (made.is_none()) return std::nullopt;
    const auto tuple = nb::cast<nb::tuple>(made);
    guard::WindowRun run{.losses = nb::cast<std::vector<double>>(tuple[0]), .threw = nb::cast<bool>(tuple[1])};
    if (!tuple[2].is_none()) {
      const auto seen = nb::cast<Run>(tuple[2]);
      run.nonfinite = !seen.origins.empty();
      run.causes = reason::causes_of(seen);
    }
    return run;
  }

 private:
  nb::callable run_;
};

std::vector<Experiment> prove(nb::callable run, const Run& recorded, const std::vector<Hypothesis>& suspected,
                              std::int64_t first, std::int64_t steps, bool diverged, nb::callable progress) {
  CalledProgram program(std::move(run));
  guard::WindowPlan plan{.step = suspected.front().step, .first = first, .steps = steps, .diverged = diverged};
  plan.own = reason::changes_for(suspected);
  plan.raw_scores = holds(recorded, FactKind::raw_scores);
  plan.progress = [&](const Experiment& one) { progress(one); };
  return guard::prove_by_windows(program, plan);
}

}  // namespace

void bind_experiment(nb::module_& m) {
  nb::class_<Experiment>(m, "Experiment", "A faulty step, or a window of steps, run again with one thing changed.")
      .def_ro("name", &Experiment::name, "'unchanged', 'previous_batch', 'operand', ...; see docs/replay.md.")
      .def_prop_ro(
          "outcome", [](const Experiment& e) { return identifier(name_of(e.outcome)); },
          "'cured', 'failed', 'delayed', 'not_applicable', 'threw' or 'out_of_budget'.")
      .def_ro("step", &Experiment::step, "As the run counts.")
      .def_prop_ro("op", [](const Experiment& e) { return or_none(e.op); })
      .def_ro("samples", &Experiment::samples)
      .def_ro("size", &Experiment::size, "How much was changed: ops, values, sets of samples, steps.")
      .def_ro("replays", &Experiment::replays)
      .def_ro("seconds", &Experiment::seconds)
      .def_ro("text", &Experiment::text, "What was changed.")
      .def("__repr__", [](const Experiment& e) {
        return "<Experiment " + e.name + " " + identifier(name_of(e.outcome)) + ": " + e.text + ">";
      });
  m.def(
      "experiments_of", [](const Run& run) { return experiments_of(run.facts); }, nb::arg("run"),
      "The experiments that a guard made, in their order.");
  m.def("prove_by_windows", &prove, nb::arg("run"), nb::arg("recorded"), nb::arg("suspected"), nb::arg("first"),
        nb::arg("steps"), nb::arg("diverged"), nb::arg("progress"));
  m.def(
      "window_spans",
      [](std::int64_t onset, std::int64_t step, std::int64_t made, bool diverged,
         const std::vector<std::int64_t>& snapshots) {
        std::vector<std::pair<std::int64_t, std::int64_t>> spans;
        for (const auto& [first, count] : guard::window_spans(onset, step, made, diverged, snapshots)) {
          spans.emplace_back(first, count);
        }
        return spans;
      },
      nb::arg("onset"), nb::arg("step"), nb::arg("made"), nb::arg("diverged"), nb::arg("snapshots"));
}

}  // namespace firstfault::python
