// Python's view of events/setup.h and events/fact.h.
#include "firstfault/events/setup.h"

#include <nanobind/stl/map.h>

#include "firstfault/events/fact.h"
#include "python/src/core_types.h"

namespace firstfault::python {
namespace {

void bind_parts(nb::module_& m) {
  nb::class_<ModuleInfo>(m, "ModuleInfo", "A module of the model.")
      .def_ro("path", &ModuleInfo::path, "'model.layers.0'")
      .def_ro("type", &ModuleInfo::type, "'Linear', 'Tanh', ...")
      .def_ro("parameters", &ModuleInfo::parameters, "Elements of its own, without those of modules inside it.")
      .def("__repr__", [](const ModuleInfo& i) { return "<ModuleInfo " + quoted(i.path) + ": " + i.type + ">"; });
  nb::class_<OptimizerInfo>(m, "OptimizerInfo", "An optimizer and the numbers of its groups.")
      .def_ro("type", &OptimizerInfo::type, "'Adam', ...")
      .def_ro("groups", &OptimizerInfo::groups, "Of each group: lr, eps, weight_decay, beta1, momentum, ...")
      .def("__repr__", [](const OptimizerInfo& i) {
        return "<OptimizerInfo " + i.type + ": " + counted(static_cast<std::int64_t>(i.groups.size()), "group") + ">";
      });
}

void bind_whole(nb::module_& m) {
  nb::class_<Setup> type(m, "Setup", "What a run is: program, machine, model, optimizers.");
  type.def_ro("command", &Setup::command, "The program and its arguments.")
      .def_ro("directory", &Setup::directory, "Where it was started.")
      .def_prop_ro(
          "git_commit", [](const Setup& s) { return or_none(s.git_commit); }, "Of that directory, or None.")
      .def_ro("host", &Setup::host)
      .def_ro("started", &Setup::started, "ISO 8601, UTC.")
      .def_ro("versions", &Setup::versions, "Of firstfault, torch, python, ...")
      .def_ro("level", &Setup::level, "'gradients', 'modules' or 'ops'.")
      .def_ro("modules", &Setup::modules)
      .def_ro("optimizers", &Setup::optimizers)
      .def("__repr__", [](const Setup& s) { return "<Setup of a run started " + s.started + ">"; });
  def_json(type);
}

void bind_fact(nb::module_& m) {
  nb::class_<Fact> type(m, "Fact", "Something seen about the program that no series of numbers shows.");
  type.def_prop_ro(
          "kind", [](const Fact& f) { return std::string(name_of(f.kind)); }, "'loss_broadcast', 'clipped', ...")
      .def_prop_ro("module", [](const Fact& f) { return or_none(f.module); })
      .def_prop_ro("op", [](const Fact& f) { return or_none(f.op); })
      .def_prop_ro("detail", [](const Fact& f) { return or_none(f.detail); })
      .def_ro("first_step", &Fact::first_step)
      .def_ro("last_step", &Fact::last_step)
      .def_ro("count", &Fact::count, "Steps in which it was seen.")
      .def_ro("numbers", &Fact::numbers, "Of the last observation.")
      .def_prop_ro(
          "file", [](const Fact& f) { return or_none(f.file); }, "Where it was seen first, or None.")
      .def_prop_ro("line", [](const Fact& f) { return f.file.empty() ? std::nullopt : std::optional(f.line); })
      .def("__repr__", [](const Fact& f) {
        return "<Fact " + std::string(name_of(f.kind)) + " since step " + std::to_string(f.first_step) + ">";
      });
  def_json(type);
}

}  // namespace

void bind_setup(nb::module_& m) {
  bind_parts(m);
  bind_whole(m);
  bind_fact(m);
}

}  // namespace firstfault::python
