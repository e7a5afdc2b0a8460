// Python's view of events/origin.h: an Origin with its evidence as plain attributes.
#include "firstfault/events/origin.h"

#include "python/src/core_types.h"

namespace firstfault::python {
namespace {

const char* name_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::fault: return "fault";
    case Outcome::swallowed: return "swallowed";
    case Outcome::deselected: return "deselected";
    case Outcome::intended: return "intended";
    case Outcome::unused: break;
  }
  return "unused";
}

void bind_frame(nb::module_& m) {
  nb::class_<SourceFrame>(m, "SourceFrame", "A line of the program.")
      .def_ro("file", &SourceFrame::file)
      .def_ro("line", &SourceFrame::line)
      .def_ro("function", &SourceFrame::function)
      .def("__eq__", [](const SourceFrame& a, const SourceFrame& b) { return a == b; })
      .def("__repr__", [](const SourceFrame& f) {
        return "<" + f.file + ":" + std::to_string(f.line) + " in " + f.function + ">";
      });
}

void bind_path_step(nb::module_& m) {
  nb::class_<PathStep>(m, "PathStep", "One op on the way from the origin to the sink.")
      .def_ro("op_number", &PathStep::op_number, "Counts recorded ops since the trace began.")
      .def_ro("op", &PathStep::op)
      .def_prop_ro("module", [](const PathStep& s) { return or_none(s.module); })
      .def_prop_ro("phase", [](const PathStep& s) { return std::string(firstfault::name_of(s.phase)); })
      .def_prop_ro(
          "outer_op", [](const PathStep& s) { return or_none(s.outer_op); },
          "The op that the program called, if another.")
      .def_ro("holds", &PathStep::holds, "What its output held: 'NaN', '-Inf and NaN', ...")
      .def_prop_ro(
          "shape", [](const PathStep& s) { return to_tuple(s.shape); }, "Of its output.")
      .def_prop_ro("dtype", [](const PathStep& s) { return or_none(s.dtype); })
      .def("__repr__",
           [](const PathStep& s) { return "<PathStep [" + std::to_string(s.op_number) + "] " + s.op + ">"; });
}

std::string repr(const Origin& origin) {
  std::string text = "<Origin in step " + std::to_string(origin.step) + ": ";
  text += origin.op.empty() ? std::string(firstfault::name_of(origin.phase)) : origin.op;
  if (!origin.module.empty()) text += " in " + quoted(origin.module);
  if (!origin.param.empty()) text += " of " + quoted(origin.param);
  text += " made " + std::string(firstfault::name_of(origin.evidence.first));
  return text + ", " + name_of(origin.outcome) + ">";
}

using OriginClass = nb::class_<Origin>;

void def_operation(OriginClass& origin) {
  origin.def_ro("step", &Origin::step, "Counted within the trace, from 0.")
      .def_ro("op_number", &Origin::op_number, "Counts recorded ops since the trace began.")
      .def_prop_ro(
          "phase", [](const Origin& o) { return std::string(firstfault::name_of(o.phase)); },
          "'forward', 'backward', 'optimizer'; 'data', 'parameter' or 'outside' name a tensor that was bad already.")
      .def_prop_ro(
          "op", [](const Origin& o) { return or_none(o.op); },
          "At the autograd level: 'aten::native_layer_norm'; in the backward the node, 'SqrtBackward0'.")
      .def_prop_ro(
          "inner_op", [](const Origin& o) { return or_none(o.inner_op); },
          "The dispatched op inside it that first showed the value, if another.")
      .def_prop_ro(
          "outer_op", [](const Origin& o) { return or_none(o.outer_op); },
          "The op that the program called, if another: 'aten::layer_norm'.")
      .def_prop_ro(
          "forward_op", [](const Origin& o) { return or_none(o.forward_op); },
          "Of a backward op: the forward op it belongs to.")
      .def_prop_ro(
          "module", [](const Origin& o) { return or_none(o.module); },
          "Path of the module, 'encoder.layers.0'; None outside the model.")
      .def_prop_ro(
          "after_module", [](const Origin& o) { return or_none(o.after_module); },
          "Outside the model: the last module that ran before the op.")
      .def_prop_ro(
          "param", [](const Origin& o) { return or_none(o.param); },
          "The parameter that the value sits in or was written to.");
}

void def_place(OriginClass& origin) {
  origin
      .def_ro("stack", &Origin::stack, "Frames of the program, innermost first; for a backward op, of its forward op.")
      .def_prop_ro("file", [](const Origin& o) { return o.stack.empty() ? std::nullopt : or_none(o.stack[0].file); })
      .def_prop_ro("line",
                   [](const Origin& o) {
                     const bool known = !o.stack.empty() && !o.stack[0].file.empty();
                     return known ? std::optional(o.stack[0].line) : std::nullopt;
                   })
      .def_ro("sample", &Origin::sample, "Row of the batch, where the batch axis is known to be carried; else None.")
      .def_ro("device", &Origin::device);
}

void def_evidence(OriginClass& origin) {
  origin
      .def_prop_ro(
          "kind", [](const Origin& o) { return or_none(firstfault::name_of(o.evidence.first)); },
          "'NaN', '+Inf' or '-Inf': the first bad element of the output.")
      .def_prop_ro(
          "counts", [](const Origin& o) { return o.evidence.output; }, "Non-finite elements of the output.")
      .def_prop_ro(
          "index", [](const Origin& o) { return to_tuple(o.evidence.index); },
          "Index of the first bad element of the output, row-major.")
      .def_prop_ro(
          "shape", [](const Origin& o) { return to_tuple(o.evidence.shape); }, "Of the output.")
      .def_prop_ro(
          "dtype", [](const Origin& o) { return or_none(o.evidence.dtype); }, "Of the output.")
      .def_prop_ro(
          "operands", [](const Origin& o) { return o.evidence.operands; }, "What the op read.")
      .def_prop_ro(
          "row", [](const Origin& o) { return o.evidence.row; },
          "The row of a softmax-like op that holds the first bad element, or None.");
}

void def_judgement(OriginClass& origin) {
  origin
      .def_prop_ro(
          "outcome", [](const Origin& o) { return name_of(o.outcome); },
          "What became of the value: 'fault', 'swallowed', 'deselected' or 'unused'.")
      .def_prop_ro(
          "absorbed", [](const Origin& o) { return o.outcome == Outcome::deselected || o.outcome == Outcome::unused; },
          "True for a note: the value was left out, or nothing that counts ever read it.")
      .def_prop_ro(
          "swallowed", [](const Origin& o) { return o.outcome == Outcome::swallowed; },
          "True for a warning: arithmetic on the way to the loss made it finite again.")
      .def_prop_ro(
          "sink", [](const Origin& o) { return or_none(o.sink); },
          "Where it did harm: 'loss', \"gradient of 'fc.weight'\", ...; None when it reached none.")
      .def_ro("path", &Origin::path, "From this op to the sink, both included.")
      .def_ro("merged", &Origin::merged, "Origins of the same step, op, module and kind that this one stands for.")
      .def_ro(
          "replayed", &Origin::replayed,
          "Seen when a guard ran the step again, and not in the step itself: that one was compiled, or not watched.")
      .def_prop_ro(
          "mechanism", [](const Origin& o) { return or_none(o.mechanism); },
          "'log_of_nonpositive', ...; None when none fits.")
      .def_prop_ro(
          "cause", [](const Origin& o) { return or_none(o.cause); }, "'op_domain', 'overflow', ...")
      .def_prop_ro(
          "because", [](const Origin& o) { return or_none(o.because); },
          "One sentence: why this op gives that from these operands.")
      .def_prop_ro(
          "advice", [](const Origin& o) { return or_none(o.advice); }, "One sentence: what to change.");
}

}  // namespace

void bind_origin(nb::module_& m) {
  bind_frame(m);
  bind_path_step(m);
  OriginClass origin(m, "Origin", "The op, or tensor, where a non-finite value began, what became of it, and why.");
  def_operation(origin);
  def_place(origin);
  def_evidence(origin);
  def_judgement(origin);
  def_views(origin);
  origin.def("__repr__", &repr);
}

}  // namespace firstfault::python
