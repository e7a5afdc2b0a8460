// Python's view of events/experiment.h, and of what came of a window of steps.
#include "firstfault/events/experiment.h"

#include "firstfault/guard/window.h"
#include "firstfault/record/run.h"
#include "python/src/core_types.h"

namespace firstfault::python {
namespace {

void make_window(Experiment* self, std::string name, const std::vector<double>& unchanged,
                 const std::vector<double>& changed) {
  new (self) Experiment();
  self->name = std::move(name);
  self->outcome = guard::judge_window(unchanged, changed);
  self->size = static_cast<std::int64_t>(changed.size());
  self->replays = self->size;
}

void make_unchanged_window(Experiment* self, const std::vector<double>& losses) {
  new (self) Experiment();
  self->name = experiment::kWindow;
  self->outcome = guard::left_its_level(losses) ? ExperimentOutcome::failed : ExperimentOutcome::cured;
  self->size = self->replays = static_cast<std::int64_t>(losses.size());
}

}  // namespace

void bind_experiment(nb::module_& m) {
  nb::class_<Experiment>(m, "Experiment", "A faulty step, or a window of steps, run again with one thing changed.")
      .def("__init__", &make_unchanged_window, nb::arg("losses"), "Of the window with nothing changed.")
      .def("__init__", &make_window, nb::arg("name"), nb::arg("unchanged"), nb::arg("changed"),
           "Of a window: the losses with nothing changed, and with the change.")
      .def_ro("name", &Experiment::name, "'unchanged', 'previous_batch', 'operand', ...; see docs/replay.md.")
      .def_prop_ro(
          "outcome", [](const Experiment& e) { return identifier(name_of(e.outcome)); },
          "'cured', 'failed', 'delayed', 'not_applicable', 'threw' or 'out_of_budget'.")
      .def_rw("step", &Experiment::step, "As the run counts.")
      .def_prop_ro("op", [](const Experiment& e) { return or_none(e.op); })
      .def_ro("samples", &Experiment::samples)
      .def_ro("size", &Experiment::size, "How much was changed: ops, values, sets of samples, steps.")
      .def_ro("replays", &Experiment::replays)
      .def_rw("seconds", &Experiment::seconds)
      .def_rw("text", &Experiment::text, "What was changed.")
      .def("__repr__", [](const Experiment& e) {
        return "<Experiment " + e.name + " " + identifier(name_of(e.outcome)) + ": " + e.text + ">";
      });
  m.def(
      "experiments_of", [](const Run& run) { return experiments_of(run.facts); }, nb::arg("run"),
      "The experiments that a guard made, in their order.");
}

}  // namespace firstfault::python
