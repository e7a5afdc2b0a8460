// Python's view of events/counts.h and events/evidence.h.
#include "firstfault/events/evidence.h"

#include "python/src/core_types.h"

namespace firstfault::python {
namespace {

const char* name_of(OperandState state) {
  switch (state) {
    case OperandState::finite: return "finite";
    case OperandState::intended_inf: return "intended_inf";
    case OperandState::bad: return "bad";
    case OperandState::unknown: break;
  }
  return "unknown";
}

void bind_counts(nb::module_& m) {
  nb::class_<Counts>(m, "Counts", "How many elements are non-finite, and which way.")
      .def_ro("nan", &Counts::nan)
      .def_ro("pos_inf", &Counts::pos_inf)
      .def_ro("neg_inf", &Counts::neg_inf)
      .def_prop_ro("total", &Counts::total)
      .def("__eq__", [](const Counts& a, const Counts& b) { return a == b; })
      .def("__repr__", [](const Counts& self) {
        return "Counts(nan=" + std::to_string(self.nan) + ", pos_inf=" + std::to_string(self.pos_inf) +
               ", neg_inf=" + std::to_string(self.neg_inf) + ")";
      });
}

std::string repr(const Operand& operand) {
  std::string text = "<Operand " + quoted(operand.name);
  if (operand.value) text += " = " + nb::cast<std::string>(nb::repr(nb::float_(*operand.value)));
  if (!operand.index.empty()) text += " at " + nb::cast<std::string>(nb::repr(nb::list(to_tuple(operand.index))));
  return text + ">";
}

void bind_operand(nb::module_& m) {
  nb::class_<Operand>(m, "Operand", "One argument of the op, as it was when the op read it.")
      .def_ro("name", &Operand::name, "Name in the op's schema: 'self', 'other', 'mask', ...")
      .def_ro("dtype", &Operand::dtype, "'float32', ...; of a scalar argument, the type of the number.")
      .def_prop_ro(
          "shape", [](const Operand& o) { return to_tuple(o.shape); }, "() for 0-dim and for scalar arguments.")
      .def_ro("is_scalar_argument", &Operand::is_scalar_argument, "A number in the call, not a tensor.")
      .def_ro("was_overwritten", &Operand::was_overwritten, "Written in place; the values are from before the op.")
      .def_prop_ro(
          "state", [](const Operand& o) { return name_of(o.state); },
          "'finite', 'intended_inf' (a mask's -Inf), 'bad', or 'unknown' where it could not be inspected.")
      .def_ro("counts", &Operand::counts, "Non-finite elements of the whole operand.")
      .def_ro("value", &Operand::value, "At the element that the first bad output element was computed from, or None.")
      .def_prop_ro(
          "index", [](const Operand& o) { return to_tuple(o.index); }, "That element's index in the operand.")
      .def_ro("min", &Operand::min, "Of the finite elements, or None.")
      .def_ro("max", &Operand::max, "Of the finite elements, or None.")
      .def_ro("zeros", &Operand::zeros, "How many elements are 0, or None where not counted.")
      .def_prop_ro(
          "source", [](const Operand& o) { return or_none(o.source); }, "\"parameter 'fc.weight'\", or None.")
      .def("__repr__", &repr);
}

void bind_row(nb::module_& m) {
  nb::class_<RowEvidence>(m, "RowEvidence", "The row, along the op's dim, that holds the first bad element.")
      .def_ro("dim", &RowEvidence::dim)
      .def_ro("length", &RowEvidence::length)
      .def_ro("neg_inf", &RowEvidence::neg_inf, "How many elements of the row are -Inf.")
      .def_ro("nan", &RowEvidence::nan, "How many elements of the row are NaN.")
      .def_prop_ro(
          "index", [](const RowEvidence& r) { return to_tuple(r.index); },
          "Of the row: the first bad element's index without `dim`.")
      .def("__repr__", [](const RowEvidence& r) {
        return "<RowEvidence: " + std::to_string(r.neg_inf) + " of " + std::to_string(r.length) + " -Inf>";
      });
}

}  // namespace

void bind_evidence(nb::module_& m) {
  bind_counts(m);
  bind_operand(m);
  bind_row(m);
}

}  // namespace firstfault::python
