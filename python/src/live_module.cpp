// firstfault._live: Trace for Python. Needs torch to be imported before it; no logic here.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "firstfault/live/intercept/observer.h"
#include "firstfault/live/session.h"
#include "python/src/live_places.h"
#include "python/src/live_tensor.h"
#include "python/src/live_types.h"

namespace nb = nanobind;

namespace firstfault::python {
namespace {

// Trace owns the places; this keeps a way to tell them about module objects.
struct BoundTrace {
  FramePlaces* places;
  std::unique_ptr<Trace> trace;
  std::int32_t watched = 0;

  BoundTrace(bool stacks, bool forward, bool backward, bool optimizer, std::int64_t max_ops) {
    auto owned = std::make_unique<FramePlaces>(stacks);
    places = owned.get();
    const TraceOptions options{stacks, forward, backward, optimizer, max_ops};
    trace = std::make_unique<Trace>(options, std::move(owned), /*start_now=*/false);
  }
  // Stopping waits for callbacks of other threads, which may wait for the interpreter's lock.
  ~BoundTrace() {
    const nb::gil_scoped_release unlocked;
    trace.reset();
  }
};

void watch(BoundTrace& self, std::vector<std::string> paths, const std::vector<nb::object>& modules,
           const std::vector<nb::tuple>& tensors) {
  std::vector<trace::NamedTensor> named;
  for (const nb::tuple& item : tensors) named.push_back(named_tensor(item));
  std::vector<PyObject*> objects;
  for (const nb::object& module : modules) objects.push_back(module.ptr());
  const auto count = static_cast<std::int32_t>(objects.size());
  {
    const nb::gil_scoped_release unlocked;
    self.trace->watch(std::move(paths), std::move(named));
  }
  self.places->watch(objects, self.watched);
  self.watched += count;
}

void unwatch(BoundTrace& self) {
  {
    const nb::gil_scoped_release unlocked;
    self.trace->unwatch();
  }
  self.places->unwatch();
}

}  // namespace
}  // namespace firstfault::python

NB_MODULE(_live, m) {
  nb::set_leak_warnings(false);  // a Trace may live until the interpreter ends
  using namespace firstfault;
  using python::BoundTrace;
  using Unlocked = nb::call_guard<nb::gil_scoped_release>;
  nb::module_::import_("firstfault._core");  // the types that come back
  nb::class_<BoundTrace>(m, "Trace")
      .def(nb::init<bool, bool, bool, bool, std::int64_t>(), nb::arg("stacks"), nb::arg("forward"), nb::arg("backward"),
           nb::arg("optimizer"), nb::arg("max_ops"))
      .def(
          "start", [](BoundTrace& self) { self.trace->start(); }, Unlocked())
      .def(
          "stop", [](BoundTrace& self) { self.trace->stop(); }, Unlocked())
      .def("pause", [](BoundTrace& self) { self.trace->pause(); })
      .def("resume", [](BoundTrace& self) { self.trace->resume(); })
      .def_prop_ro("running", [](const BoundTrace& self) { return self.trace->running(); })
      .def("watch", &python::watch, nb::arg("paths"), nb::arg("modules"), nb::arg("tensors"))
      .def("unwatch", &python::unwatch)
      .def(
          "has_issue", [](BoundTrace& self, const at::Tensor& t) { return self.trace->has_issue(t); }, Unlocked())
      .def(
          "diagnose", [](BoundTrace& self, const at::Tensor& t) { return self.trace->diagnose(t); }, Unlocked())
      .def(
          "origins", [](BoundTrace& self) { return self.trace->origins(); }, Unlocked())
      .def(
          "run", [](BoundTrace& self) { return self.trace->run(); }, Unlocked());
  python::bind_watch(m);
  python::bind_clip(m);
  python::bind_guard(m);
  python::bind_experiments(m);
  // For the tests of what happens when the observer itself fails.
  m.def("_fail_at", [](int point) { intercept::set_fail_point(static_cast<intercept::FailPoint>(point)); });
}
