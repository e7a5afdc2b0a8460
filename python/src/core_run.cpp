// Python's view of record/run.h.
#include "firstfault/record/run.h"

#include "python/src/core_types.h"

namespace firstfault::python {
namespace {

void bind_uninspected(nb::module_& m) {
  nb::class_<Uninspected>(m, "Uninspected", "What could not be looked at.")
      .def_ro("what", &Uninspected::what, "'dtype float8_e4m3fn', 'layout sparse_coo', ...")
      .def_ro("tensors", &Uninspected::tensors, "How many tensors.")
      .def("__repr__", [](const Uninspected& u) {
        return "<" + counted(u.tensors, "tensor") + " of " + u.what + " not inspected>";
      });
}

void bind_diagnosis(nb::module_& m) {
  nb::class_<Diagnosis> type(m, "Diagnosis", "The answer about one tensor.");
  type.def_ro("target", &Diagnosis::target, "'loss', \"gradient of 'fc.weight'\", 'aten::sum output', ...")
      .def_prop_ro(
          "shape", [](const Diagnosis& d) { return to_tuple(d.shape); }, "Of the target.")
      .def_ro("dtype", &Diagnosis::dtype, "Of the target.")
      .def_ro("counts", &Diagnosis::counts, "Non-finite elements of the target; all 0: nothing is wrong with it.")
      .def_ro("ops", &Diagnosis::ops, "Ops recorded so far.")
      .def_prop_ro(
          "note", [](const Diagnosis& d) { return or_none(d.note); }, "Why there is no answer, or None.")
      .def_ro("culprits", &Diagnosis::culprits, "Independent origins, earliest first; each path ends at the target.")
      .def("__repr__", [](const Diagnosis& d) {
        return "<Diagnosis of " + d.target + ": " + counted(static_cast<std::int64_t>(d.culprits.size()), "culprit") +
               ">";
      });
  def_views(type);
}

void def_watched(nb::class_<Run>& type) {
  type.def_prop_ro(
          "state", [](const Run& r) { return std::string(name_of(r.state)); }, "'recording', 'died' or 'complete'.")
      .def_ro("setup", &Run::setup, "Program, machine, model, optimizers.")
      .def_ro("sites", &Run::sites, "Where something is measured, in the order in which it was first seen.")
      .def_ro("rows", &Run::rows, "The numbers of the steps, ascending; older ones are thinned out.")
      .def_prop_ro("transitions", &transitions_of, "When the state of a site changed, by step.")
      .def_ro("facts", &Run::facts, "What was seen about the program that no series of numbers shows.")
      .def_ro("actions", &Run::actions, "What a guard did, by step.");
}

}  // namespace

std::vector<SitedTransition> transitions_of(const Run& run) {
  std::vector<SitedTransition> out;
  out.reserve(run.transitions.size());
  for (const Transition& one : run.transitions) {
    const auto index = static_cast<std::size_t>(one.site);
    out.push_back({one, one.site >= 0 && index < run.sites.size() ? run.sites[index] : Site{}});
  }
  return out;
}

void bind_run(nb::module_& m) {
  bind_uninspected(m);
  bind_diagnosis(m);
  nb::class_<Run> type(m, "Run", "What was recorded, as a plain value.");
  type.def_ro("steps", &Run::steps, "Steps begun.")
      .def_ro("ops", &Run::ops, "Ops recorded.")
      .def_ro("origins", &Run::origins, "Faults first, in the order they happened; then warnings; then notes.")
      .def_ro("uninspected", &Run::uninspected, "What could not be looked at.")
      .def_ro("warnings", &Run::warnings, "Caps reached, why the tool switched itself off, ...")
      .def("__repr__", [](const Run& r) {
        return "<Run: " + counted(r.steps, "step") + ", " + counted(r.ops, "op") + ", " +
               counted(static_cast<std::int64_t>(r.origins.size()), "origin") + ">";
      });
  def_watched(type);
  def_views(type);
}

}  // namespace firstfault::python
