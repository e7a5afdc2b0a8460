// Python's view of events/experiment.h.
#include "firstfault/events/experiment.h"

#include "firstfault/record/run.h"
#include "python/src/core_types.h"

namespace firstfault::python {

void bind_experiment(nb::module_& m) {
  nb::class_<Experiment>(m, "Experiment", "A faulty step, run again with one thing changed.")
      .def_ro("name", &Experiment::name, "'unchanged', 'previous_batch', 'operand', ...; see docs/replay.md.")
      .def_prop_ro(
          "outcome", [](const Experiment& e) { return identifier(name_of(e.outcome)); },
          "'cured', 'failed', 'delayed', 'not_applicable', 'threw' or 'out_of_budget'.")
      .def_ro("step", &Experiment::step)
      .def_prop_ro("op", [](const Experiment& e) { return or_none(e.op); })
      .def_ro("samples", &Experiment::samples)
      .def_ro("size", &Experiment::size, "How much was changed: ops, values, sets of samples.")
      .def_ro("replays", &Experiment::replays)
      .def_ro("seconds", &Experiment::seconds)
      .def_ro("text", &Experiment::text, "What was changed.")
      .def("__repr__", [](const Experiment& e) {
        return "<Experiment " + e.name + " " + identifier(name_of(e.outcome)) + ": " + e.text + ">";
      });
  m.def(
      "experiments_of", [](const Run& run) { return experiments_of(run.facts); }, nb::arg("run"),
      "The experiments that a guard made, in their order.");
}

}  // namespace firstfault::python
