// firstfault._live: Trace for Python. Needs torch to be imported before it; no logic here.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "firstfault/live/intercept/observer.h"
#include "firstfault/live/session.h"
#include "python/src/live_bound.h"
#include "python/src/live_places.h"
#include "python/src/live_tensor.h"
#include "python/src/live_types.h"

namespace nb = nanobind;

namespace firstfault::python {
namespace {

struct BoundTrace : Bound<Trace> {
  BoundTrace(bool stacks, bool forward, bool backward, bool optimizer, std::int64_t max_ops)
      : Bound(TraceOptions{stacks, forward, backward, optimizer, max_ops}, stacks) {}
};

void unwatch(BoundTrace& self) {
  {
    const nb::gil_scoped_release unlocked;
    self.observer->unwatch();
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
          "start", [](BoundTrace& self) { self.observer->start(); }, Unlocked())
      .def(
          "stop", [](BoundTrace& self) { self.observer->stop(); }, Unlocked())
      .def("pause", [](BoundTrace& self) { self.observer->pause(); })
      .def("resume", [](BoundTrace& self) { self.observer->resume(); })
      .def_prop_ro("running", [](const BoundTrace& self) { return self.observer->running(); })
      .def("watch", &BoundTrace::watch, nb::arg("modules"), nb::arg("tensors"))
      .def("unwatch", &python::unwatch)
      .def(
          "has_issue", [](BoundTrace& self, const at::Tensor& t) { return self.observer->has_issue(t); }, Unlocked())
      .def(
          "diagnose", [](BoundTrace& self, const at::Tensor& t) { return self.observer->diagnose(t); }, Unlocked())
      .def(
          "origins", [](BoundTrace& self) { return self.observer->origins(); }, Unlocked())
      .def(
          "run", [](BoundTrace& self) { return self.observer->run(); }, Unlocked());
  python::bind_watch(m);
  python::bind_clip(m);
  python::bind_guard(m);
  python::bind_experiments(m);
  // For the tests of what happens when the observer itself fails.
  m.def("_fail_at", [](int point) { intercept::set_fail_point(static_cast<intercept::FailPoint>(point)); });
}
