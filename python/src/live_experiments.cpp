// firstfault._live: the experiments on a faulty step. No logic here.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "firstfault/guard/hyperparameter.h"
#include "firstfault/live/guard/batch_memory.h"
#include "firstfault/live/guard/experiments.h"
#include "firstfault/live/guard/standardise.h"
#include "python/src/live_replay.h"

namespace firstfault::python {
namespace {

// The caller's list keeps the callable alive.
std::function<void()> called(nb::handle callable) {
  if (callable.is_none()) return {};
  return [callable] {
    const nb::gil_scoped_acquire locked;
    callable();
  };
}

// (name, what is changed, begin, end, writes parameters)
guard::OwnChange own_change(const nb::tuple& given) {
  guard::OwnChange own;
  own.change.name = nb::cast<std::string>(given[0]);
  own.text = nb::cast<std::string>(given[1]);
  own.change.begin = called(given[2]);
  own.change.end = called(given[3]);
  own.change.writes_parameters = nb::cast<bool>(given[4]);
  return own;
}

struct BoundCircumstances {
  guard::Circumstances given;
  nb::list own;       // what the callables in `given` refer to
  nb::object report;  // likewise
};

// The same tensors where nothing lies outside of the range of earlier batches.
nb::list clipped(const guard::BatchMemory& self, const nb::list& batch) {
  const auto tensors = tensors_of(batch);
  const bool known = self.batches() >= guard::BatchMemory::kEnough && self.ranges().size() == tensors.size();
  nb::list list;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto made = known ? guard::clipped_to(self.ranges()[i], tensors[i], false) : at::Tensor();
    list.append(made.defined() ? python_tensor(made) : nb::object(batch[i]));
  }
  return list;
}

guard::Experiments experiment(BoundReplayer& self, const guard::ReplayResult& step, const guard::BatchMemory& memory,
                              BoundCircumstances& bound) {
  auto& replayer = self.open();
  guard::Circumstances& given = bound.given;
  given.result = step;
  given.previous = memory.previous();
  given.ranges = memory.ranges();
  given.batches = memory.batches();
  given.own.clear();
  for (const nb::handle one : bound.own) given.own.push_back(own_change(nb::cast<nb::tuple>(one)));
  if (!bound.report.is_none()) {
    given.progress = [report = nb::handle(bound.report)](const Experiment& made) {
      const nb::gil_scoped_acquire locked;
      report(nb::cast(made));
    };
  }
  const nb::gil_scoped_release unlocked;
  return guard::experiment(replayer, given);
}

}  // namespace

void bind_experiments(nb::module_& m) {
  nb::class_<guard::BatchMemory>(m, "BatchMemory")
      .def(nb::init<>())
      .def("remember", [](guard::BatchMemory& self, const nb::list& batch) { self.remember(tensors_of(batch)); })
      .def("clipped", &clipped);
  nb::class_<guard::Standardiser>(m, "Standardiser")
      .def("__init__",
           [](guard::Standardiser* self, const nb::list& batch) { new (self) guard::Standardiser(tensors_of(batch)); })
      .def("__bool__", &guard::Standardiser::any)
      .def("__call__",
           [](const guard::Standardiser& self, const nb::list& batch) { return listed(self(tensors_of(batch))); });
  nb::class_<BoundCircumstances>(m, "Circumstances")
      .def(
          "__init__",
          [](BoundCircumstances* self, nb::list own, nb::object report) {
            new (self) BoundCircumstances{{}, std::move(own), std::move(report)};
          },
          nb::arg("own"), nb::arg("report").none())
      .def_prop_rw(
          "step", [](const BoundCircumstances& self) { return self.given.step; },
          [](BoundCircumstances& self, std::int64_t step) { self.given.step = step; })
      .def_prop_rw(
          "raw_scores", [](const BoundCircumstances& self) { return self.given.raw_scores; },
          [](BoundCircumstances& self, bool raw) { self.given.raw_scores = raw; })
      .def_prop_rw(
          "unchanged", [](const BoundCircumstances& self) { return self.given.unchanged; },
          [](BoundCircumstances& self, int n) { self.given.unchanged = n; })
      .def_prop_rw(
          "max_replays", [](const BoundCircumstances& self) { return self.given.max_replays; },
          [](BoundCircumstances& self, int n) { self.given.max_replays = n; })
      .def_prop_rw(
          "max_seconds", [](const BoundCircumstances& self) { return self.given.max_seconds; },
          [](BoundCircumstances& self, double s) { self.given.max_seconds = s; });
  nb::class_<guard::Experiments>(m, "Experiments")
      .def_ro("exactness", &guard::Experiments::exactness)
      .def_ro("made", &guard::Experiments::made);
  m.def("draw_anew", [](const nb::list& parameters) { guard::draw_anew(tensors_of(parameters)); });
  m.def(
      "sound_value",
      [](double value, double as_held, bool is_eps, std::optional<double> usual) {
        return guard::sound_value({"", value, as_held, is_eps}, usual);
      },
      nb::arg("value"), nb::arg("as_held"), nb::arg("is_eps"), nb::arg("usual").none());
  m.def("experiment", &experiment, nb::arg("replayer"), nb::arg("step"), nb::arg("memory"), nb::arg("circumstances"));
}

}  // namespace firstfault::python
