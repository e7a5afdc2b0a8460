// Python's view of events/site.h, events/health.h and events/step_row.h.
#include "firstfault/events/step_row.h"

#include <nanobind/stl/map.h>
#include "firstfault/events/site.h"

#include "python/src/core_types.h"

namespace firstfault::python {
namespace {

void bind_site(nb::module_& m) {
  nb::class_<Site> type(m, "Site", "Where something is measured, once per step.");
  type.def_prop_ro(
          "role", [](const Site& s) { return std::string(name_of(s.role)); },
          "'loss', 'input', 'target', 'activation', 'gradient', 'parameter' or 'optimizer'.")
      .def_prop_ro(
          "module", [](const Site& s) { return or_none(s.module); }, "Path of the module that owns it, or None.")
      .def_ro("name", &Site::name, "Parameter 'model.fc.weight', activation 'model.act1', 'input 0', 'group 0'.")
      .def_prop_ro(
          "op", [](const Site& s) { return or_none(s.op); },
          "Of an activation, the op, 'aten::tanh'; of the loss, the op that made it; else None.")
      .def_ro("dtype", &Site::dtype, "When first seen.")
      .def_prop_ro(
          "shape", [](const Site& s) { return to_tuple(s.shape); }, "When first seen.")
      .def_prop_ro(
          "order", [](const Site& s) { return s.order < 0 ? std::nullopt : std::optional(s.order); },
          "Place of its module in the first forward pass, from 0; None where it is not known.")
      .def("__str__", [](const Site& s) { return present::to_text(s); })
      .def("__repr__", [](const Site& s) { return "<Site: " + present::to_text(s) + ">"; });
  def_json(type);
}

using HealthClass = nb::class_<Health>;

/// NaN, which stands for "not measured", is None.
template <float Health::*Number>
void def_number(HealthClass& type, const char* name, const char* doc) {
  type.def_prop_ro(
      name, [](const Health& h) { return measured_or_none(h.*Number); }, doc);
}

void bind_health(nb::module_& m) {
  HealthClass type(m, "Health", "What one pass over a tensor says about it; None: not measured, or without a meaning.");
  type.def_prop_ro(
      "nonfinite", [](const Health& h) { return h.seen() ? std::optional(h.nonfinite) : std::nullopt; },
      "How many elements are NaN or Inf; None where the site was not seen in this step.");
  def_number<&Health::rms>(type, "rms", "Root mean square of the finite elements; of a loss, the value itself.");
  def_number<&Health::absmax>(type, "absmax", "Largest magnitude of the finite elements.");
  def_number<&Health::mean>(type, "mean", "Of the finite elements.");
  def_number<&Health::zeros>(type, "zeros", "Fraction of elements that are exactly 0.");
  def_number<&Health::saturated>(type, "saturated", "Activation: fraction at a flat end of the nonlinearity.");
  def_number<&Health::dead>(type, "dead", "Activation: fraction of channels that were 0 for a whole window.");
  def_number<&Health::varies>(type, "varies", "Activation: std between samples over rms.");
  def_number<&Health::columns>(type, "columns", "Input, target: largest over smallest scale of a column.");
  def_number<&Health::update>(type, "update", "Parameter: rms of the step's change over rms before it.");
  def_number<&Health::flips>(type, "flips", "Gradient: cosine with that of the step before.");
  def_number<&Health::lr>(type, "lr", "Optimizer: learning rate.");
  def_number<&Health::second>(type, "second", "Optimizer: smallest non-zero sqrt(v) that was sampled.");
  def_number<&Health::eps>(type, "eps", "Optimizer: eps as its dtype holds it.");
  def_number<&Health::state_steps>(type, "state_steps", "Optimizer: smallest number of steps of a parameter's state.");
  type.def_prop_ro(
      "row", [](const Health& h) { return h.row < 0 ? std::nullopt : std::optional(h.row); },
      "Input, target: index in dim 0 of the largest magnitude, where it stands out.");
  type.def("__repr__", [](const Health& h) {
    if (!h.seen()) return std::string("<Health: not seen>");
    const std::string rms = nb::cast<std::string>(nb::repr(nb::float_(h.rms)));
    return "<Health: rms " + rms + ", " + std::to_string(h.nonfinite) + " non-finite>";
  });
  def_json(type);
}

std::optional<double> loss_of(const StepRow& row) {
  return row.loss_state == StepRow::Loss::nan ? std::optional(row.loss) : measured_or_none(row.loss);
}

using RowClass = nb::class_<StepRow>;

void def_numbers(RowClass& type) {
  type.def_ro("step", &StepRow::step, "Optimizer steps attempted, from 0.")
      .def_ro("seconds", &StepRow::seconds, "Since the run began.")
      .def_prop_ro("loss", &loss_of, "May be NaN or Inf; None where it is not known.")
      .def_prop_ro(
          "gradient_norm", [](const StepRow& r) { return measured_or_none(r.gradient_norm); },
          "L2 over all gradients as the optimizer takes them.")
      .def_prop_ro(
          "update_ratio", [](const StepRow& r) { return measured_or_none(r.update_ratio); },
          "rms of all changes over rms of all parameters.")
      .def_prop_ro(
          "parameter_norm", [](const StepRow& r) { return measured_or_none(r.parameter_norm); },
          "L2, estimated from a fixed sample.")
      .def_prop_ro(
          "lr", [](const StepRow& r) { return measured_or_none(r.lr); }, "The largest of the groups.")
      .def_prop_ro(
          "loss_scale", [](const StepRow& r) { return measured_or_none(r.loss_scale); }, "Of a GradScaler, or None.");
}

void bind_row(nb::module_& m) {
  RowClass type(m, "StepRow", "The numbers of one optimizer step.");
  def_numbers(type);
  type.def_ro("optimizer", &StepRow::optimizer, "Whose step it was, by the order in which they were watched.")
      .def_ro("logged", &StepRow::logged, "Numbers that the program gave to log().")
      .def_ro("backwards", &StepRow::backwards, "Backward passes since the last step.")
      .def_ro("gradients_left_over", &StepRow::gradients_left_over, "The first of them added to gradients not zero.")
      .def_ro("skipped", &StepRow::skipped, "A GradScaler or a guard left the step out.")
      .def_ro("reset_state", &StepRow::reset_state, "The optimizer had lost its state when the step began.")
      .def_ro("sites", &StepRow::sites, "Health by index of Run.sites; shorter or empty where it is no longer kept.")
      .def("__repr__", [](const StepRow& r) {
        const std::optional<double> loss = loss_of(r);
        const std::string shown = loss ? nb::cast<std::string>(nb::repr(nb::float_(*loss))) : "None";
        return "<StepRow " + std::to_string(r.step) + ": loss " + shown + ">";
      });
  def_json(type);
}

}  // namespace

void bind_rows(nb::module_& m) {
  bind_site(m);
  bind_health(m);
  bind_row(m);
}

}  // namespace firstfault::python
