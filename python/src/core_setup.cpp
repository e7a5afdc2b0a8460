// Python's view of events/setup.h, events/fact.h and events/guard_action.h.
#include "firstfault/events/setup.h"

#include <nanobind/stl/map.h>

#include <cmath>
#include <optional>

#include "firstfault/events/fact.h"
#include "firstfault/events/guard_action.h"
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

std::optional<double> known_or_none(double value) { return std::isnan(value) ? std::nullopt : std::optional(value); }

void bind_action(nb::module_& m) {
  nb::class_<GradientShare>(m, "GradientShare", "A parameter's part in a gradient norm.")
      .def_ro("name", &GradientShare::name)
      .def_ro("share", &GradientShare::share);
  nb::class_<GuardAction> type(m, "GuardAction", "What a guard did to a step.");
  const auto number = [&](const char* name, double GuardAction::*member, const char* what) {
    type.def_prop_ro(
        name, [member](const GuardAction& a) { return known_or_none(a.*member); }, what);
  };
  type.def_ro("step", &GuardAction::step)
      .def_prop_ro(
          "action", [](const GuardAction& a) { return std::string(name_of(a.kind)); },
          "'clip', 'skip', 'rollback', 'stop' or 'warn'.")
      .def_prop_ro(
          "fault", [](const GuardAction& a) { return or_none(a.fault); },
          "'loss', 'gradient', 'hyperparameter', 'spike' or 'result'; None for a clip.")
      .def_prop_ro("reason", [](const GuardAction& a) { return or_none(a.reason); })
      .def_prop_ro(
          "undone", [](const GuardAction& a) { return or_none(a.undone); },
          "'copy' or 'snapshot' where the optimizer had written already.")
      .def_prop_ro(
          "snapshot", [](const GuardAction& a) { return a.snapshot < 0 ? std::nullopt : std::optional(a.snapshot); },
          "Step that the run was taken back to.")
      .def_ro("lost", &GuardAction::lost, "Steps that this cost.")
      .def_ro("largest", &GuardAction::largest, "Parameters that made up the norm, largest first.")
      .def("__repr__", [](const GuardAction& a) {
        return "<GuardAction " + std::string(name_of(a.kind)) + " in step " + std::to_string(a.step) +
               (a.reason.empty() ? "" : ": " + a.reason) + ">";
      });
  number("norm", &GuardAction::norm, "Of the gradients before a clip.");
  number("limit", &GuardAction::limit, "That it was clipped to.");
  number("coefficient", &GuardAction::coefficient, "What the gradients were multiplied by.");
  number("angle", &GuardAction::angle, "Radians that they were turned by.");
  number("length", &GuardAction::length, "lr * norm: of plain SGD's step without the clip.");
  def_json(type);
}

}  // namespace

void bind_setup(nb::module_& m) {
  bind_parts(m);
  bind_whole(m);
  bind_fact(m);
  bind_action(m);
}

}  // namespace firstfault::python
