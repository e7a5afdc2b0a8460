// Python's view of events/hypothesis.h and events/transition.h, and of an explanation as a whole.
#include "firstfault/events/hypothesis.h"
#include "firstfault/events/transition.h"
#include "firstfault/reason/engine.h"
#include "firstfault/record/read_run.h"
#include "python/src/core_types.h"

namespace firstfault::python {
namespace {

void bind_evidence_item(nb::module_& m) {
  nb::class_<Evidence> type(m, "Evidence", "One piece of evidence: a sentence with the numbers in it.");
  type.def_prop_ro(
          "step", [](const Evidence& e) { return e.step < 0 ? std::nullopt : std::optional(e.step); },
          "None where it is not bound to a step.")
      .def_prop_ro(
          "site", [](const Evidence& e) { return or_none(e.site); }, "Name of the site, or None.")
      .def_ro("text", &Evidence::text)
      .def("__str__", [](const Evidence& e) { return e.text; })
      .def("__repr__", [](const Evidence& e) { return "<Evidence: " + e.text + ">"; });
  def_json(type);
}

using HypothesisClass = nb::class_<Hypothesis>;

void def_judgement(HypothesisClass& type) {
  type.def_ro("cause", &Hypothesis::cause, "'lr_too_high', 'op_domain', ...")
      .def_ro("confidence", &Hypothesis::confidence, "0 to 1; of those said with 0.9, nine in ten are right.")
      .def_prop_ro(
          "standing", [](const Hypothesis& h) { return identifier(name_of(h.standing)); },
          "'observed', 'inferred'; after a replay 'confirmed', 'located', 'not_separable', 'delayed', 'refuted' or "
          "'not_tested'.")
      .def_prop_ro(
          "mechanism", [](const Hypothesis& h) { return or_none(h.mechanism); }, "'log_of_nonpositive', ... or None.")
      .def_ro("description", &Hypothesis::description, "One or two sentences: what happened and why.")
      .def_ro("evidence", &Hypothesis::evidence, "In order of time; effects of the cause are among it.")
      .def_ro("advice", &Hypothesis::advice, "What to change.");
}

void def_place(HypothesisClass& type) {
  type.def_ro("step", &Hypothesis::step, "First step in which the harm shows.")
      .def_ro("onset_step", &Hypothesis::onset_step,
              "When the cause began to act, where that is another step, or None.")
      .def_prop_ro(
          "phase", [](const Hypothesis& h) { return or_none(h.phase); },
          "'data', 'forward', 'backward', 'optimizer', 'collective' or None.")
      .def_prop_ro("op", [](const Hypothesis& h) { return or_none(h.op); })
      .def_prop_ro(
          "forward_op", [](const Hypothesis& h) { return or_none(h.forward_op); },
          "Of a backward op: the forward op it belongs to.")
      .def_prop_ro("module", [](const Hypothesis& h) { return or_none(h.module); })
      .def_prop_ro("param", [](const Hypothesis& h) { return or_none(h.param); })
      .def_ro("sample", &Hypothesis::sample, "Row of the batch, or None.")
      .def_prop_ro("file", [](const Hypothesis& h) { return or_none(h.file); })
      .def_prop_ro("line", [](const Hypothesis& h) { return h.file.empty() ? std::nullopt : std::optional(h.line); });
}

std::string repr(const Hypothesis& hypothesis) {
  const std::string confidence = nb::cast<std::string>(nb::cast(hypothesis.confidence).attr("__format__")(".2f"));
  return "<Hypothesis " + hypothesis.cause + " in step " + std::to_string(hypothesis.step) + ", confidence " +
         confidence + ">";
}

void bind_hypothesis(nb::module_& m) {
  HypothesisClass type(m, "Hypothesis", "Why the run failed: a cause, how sure, on what evidence, and what to do.");
  def_judgement(type);
  def_place(type);
  def_views(type);
  type.def("__repr__", &repr);
}

void bind_transition(nb::module_& m) {
  using T = SitedTransition;
  nb::class_<T> type(m, "Transition", "The state of a site changed.");
  type.def_prop_ro("step", [](const T& t) { return t.transition.step; })
      .def_prop_ro(
          "site", [](const T& t) { return t.site; }, "The Site; its name alone is `name`.")
      .def_prop_ro(
          "site_index", [](const T& t) { return t.transition.site; }, "In Run.sites.")
      .def_prop_ro("name", [](const T& t) { return t.site.name; })
      .def_prop_ro("role", [](const T& t) { return std::string(name_of(t.site.role)); })
      .def_prop_ro("module", [](const T& t) { return or_none(t.site.module); })
      .def_prop_ro(
          "from_state", [](const T& t) { return identifier(name_of(t.transition.from)); },
          "'healthy', 'non_finite', 'exploding', 'vanishing', 'saturated', 'dead', 'spiking' or 'unstable'.")
      .def_prop_ro("to_state", [](const T& t) { return identifier(name_of(t.transition.to)); })
      .def_prop_ro(
          "value", [](const T& t) { return t.transition.value; }, "The quantity that decided.")
      .def_prop_ro(
          "baseline", [](const T& t) { return measured_or_none(t.transition.baseline); },
          "The site's own usual value, or None where there is none yet.")
      .def_prop_ro("confidence", [](const T& t) { return t.transition.confidence; })
      .def("__str__", [](const T& t) { return present::to_text(t.transition, t.site); })
      .def("__repr__", [](const T& t) { return "<Transition in " + present::to_text(t.transition, t.site) + ">"; });
  def_json(type);
}

}  // namespace

void bind_watch(nb::module_& m) {
  bind_evidence_item(m);
  bind_hypothesis(m);
  bind_transition(m);
  m.def("read_run", &read_run, nb::arg("path"), nb::call_guard<nb::gil_scoped_release>(), "What a run file holds.");
  m.def("hypotheses", &reason::hypotheses, nb::arg("run"), nb::call_guard<nb::gil_scoped_release>(),
        "Why a run failed, best first.");
  m.def(
      "explanation_text",
      [](const std::vector<Hypothesis>& hypotheses, const Run& run) { return present::to_text(hypotheses, run); },
      nb::arg("hypotheses"), nb::arg("run"), "The verdict on the run, then each hypothesis.");
  m.def(
      "explanation_html",
      [](const std::vector<Hypothesis>& hypotheses, const Run& run) { return present::to_html(hypotheses, run); },
      nb::arg("hypotheses"), nb::arg("run"), "The same as a piece of HTML.");
  m.def(
      "explanation_json",
      [](const std::vector<Hypothesis>& hypotheses, const Run& run, std::optional<int> indent) {
        return present::to_json(hypotheses, run, indent.value_or(-1));
      },
      nb::arg("hypotheses"), nb::arg("run"), nb::arg("indent") = nb::none(), "The same as a JSON object.");
}

}  // namespace firstfault::python
