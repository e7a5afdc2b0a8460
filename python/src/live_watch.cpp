// firstfault._live.Watch: no logic here.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "firstfault/live/guard/clip.h"
#include "firstfault/live/module_names.h"
#include "firstfault/live/watch/parameters.h"
#include "python/src/live_tensor.h"
#include "python/src/live_types.h"
#include "python/src/live_watch.h"

namespace nb = nanobind;

namespace firstfault::python {
namespace {

std::vector<at::Tensor> tensors_of(const nb::list& list) {
  std::vector<at::Tensor> tensors;
  for (const nb::handle item : list) tensors.push_back(nb::cast<at::Tensor>(item));
  return tensors;
}

int hold(BoundWatch& self, const nb::list& tensors, std::string type,
         std::vector<std::map<std::string, double>> groups) {
  auto held = tensors_of(tensors);
  const nb::gil_scoped_release unlocked;
  return self.observer->hold(held, {std::move(type), std::move(groups)});
}

void hold_more(BoundWatch& self, int optimizer, const nb::list& tensors) {
  auto held = tensors_of(tensors);
  const nb::gil_scoped_release unlocked;
  self.observer->hold_more(optimizer, held);
}

std::vector<watch::GroupNumbers> groups_of(const nb::list& list) {
  std::vector<watch::GroupNumbers> groups;
  for (const nb::handle item : list) {
    const auto tuple = nb::cast<nb::tuple>(item);
    watch::GroupNumbers numbers;
    numbers.has_lr = !tuple[0].is_none();
    if (numbers.has_lr) numbers.lr = nb::cast<double>(tuple[0]);
    numbers.eps = nb::cast<double>(tuple[1]);
    numbers.state_steps = nb::cast<double>(tuple[2]);
    for (const nb::handle moment : nb::cast<nb::list>(tuple[3])) {
      numbers.second_moments.push_back(nb::cast<at::Tensor>(moment));
    }
    groups.push_back(std::move(numbers));
  }
  return groups;
}

void before_step(BoundWatch& self, int optimizer, const nb::list& groups, bool ranged) {
  const auto numbers = groups_of(groups);
  const nb::gil_scoped_release unlocked;
  self.observer->before_step(optimizer, numbers, ranged);
}

void after_step(BoundWatch& self, int optimizer, const nb::list& groups, bool ranged) {
  const auto numbers = groups_of(groups);
  const nb::gil_scoped_release unlocked;
  self.observer->after_step(optimizer, numbers, ranged);
}

void close(BoundWatch& self, bool died) {
  const nb::gil_scoped_release unlocked;
  self.observer->close(died ? RunState::died : RunState::complete);
}

void describe(BoundWatch& self, std::vector<std::string> command, std::map<std::string, std::string> versions) {
  const nb::gil_scoped_release unlocked;
  self.observer->describe(std::move(command), std::move(versions));
}

GuardAction::Kind action_of(const std::string& name) {
  for (int kind = 0; kind <= static_cast<int>(GuardAction::Kind::warn); ++kind) {
    if (name == name_of(static_cast<GuardAction::Kind>(kind))) return static_cast<GuardAction::Kind>(kind);
  }
  throw nb::value_error("firstfault: no such action of a guard");
}

// (step, action, fault, reason, undone, snapshot, steps lost)
GuardAction acted(BoundWatch& self, const nb::tuple& given) {
  GuardAction action;
  action.step = nb::cast<std::int64_t>(given[0]);
  action.kind = action_of(nb::cast<std::string>(given[1]));
  action.fault = nb::cast<std::string>(given[2]);
  action.reason = nb::cast<std::string>(given[3]);
  action.undone = nb::cast<std::string>(given[4]);
  action.snapshot = nb::cast<std::int64_t>(given[5]);
  action.lost = nb::cast<std::int64_t>(given[6]);
  const nb::gil_scoped_release unlocked;
  self.observer->acted(action);
  return action;
}

}  // namespace

void bind_watch(nb::module_& m) {
  using Unlocked = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<BoundWatch>(m, "Watch")
      .def(nb::init<std::string, double, double, std::string>(), nb::arg("level"), nb::arg("vanishing"),
           nb::arg("exploding"), nb::arg("run_file"))
      .def(
          "start", [](BoundWatch& self) { self.observer->start(); }, Unlocked())
      .def("close", &close, nb::arg("died"))
      .def_prop_ro("running", [](const BoundWatch& self) { return self.observer->running(); })
      .def_prop_ro("path", [](const BoundWatch& self) { return self.observer->path(); })
      .def("watch", &BoundWatch::watch, nb::arg("modules"), nb::arg("tensors"))
      .def("hold", &hold, nb::arg("tensors"), nb::arg("type"), nb::arg("groups"))
      .def("hold_more", &hold_more, nb::arg("optimizer"), nb::arg("tensors"))
      .def("describe", &describe, nb::arg("command"), nb::arg("versions"))
      .def("before_step", &before_step, nb::arg("optimizer"), nb::arg("groups"), nb::arg("ranged"))
      .def(
          "scaled", [](BoundWatch& self, double scale, bool passed_over) { self.observer->scaled(scale, passed_over); },
          nb::arg("scale"), nb::arg("passed_over"))
      .def("after_step", &after_step, nb::arg("optimizer"), nb::arg("groups"), nb::arg("ranged"))
      .def(
          "loss", [](BoundWatch& self, double value) { self.observer->loss(value); }, Unlocked())
      .def(
          "log", [](BoundWatch& self, const std::string& name, double value) { self.observer->log(name, value); },
          Unlocked())
      .def(
          "steps", [](BoundWatch& self) { return self.observer->steps(); }, Unlocked())
      .def("acted", &acted)
      .def(
          "measured", [](BoundWatch& self, const ClipRecord& clip) { return self.observer->measured(clip); },
          Unlocked())
      .def(
          "refused", [](BoundWatch& self) { self.observer->refused(); }, Unlocked())
      .def(
          "learned",
          [](BoundWatch& self, std::int64_t step, std::vector<Origin> origins,
             const std::vector<Experiment>& experiments) {
            self.observer->learned(step, std::move(origins), experiments);
          },
          Unlocked(), nb::arg("step"), nb::arg("origins"), nb::arg("experiments"))
      .def(
          "rolled_back", [](BoundWatch& self) { self.observer->rolled_back(); }, Unlocked())
      .def(
          "begin_aside", [](BoundWatch& self) { self.observer->begin_aside(); }, Unlocked())
      .def(
          "end_aside", [](BoundWatch& self, bool died) { return self.observer->end_aside(died); }, Unlocked())
      .def(
          "pause", [](BoundWatch& self) { self.observer->pause(); }, Unlocked())
      .def(
          "resume", [](BoundWatch& self) { self.observer->resume(); }, Unlocked())
      .def(
          "pending_loss", [](BoundWatch& self) { return self.observer->pending_loss(); }, Unlocked())
      .def(
          "run", [](BoundWatch& self) { return self.observer->run(); }, Unlocked())
      .def(
          "explain", [](BoundWatch& self) { return self.observer->explain(); }, Unlocked());
}

}  // namespace firstfault::python
