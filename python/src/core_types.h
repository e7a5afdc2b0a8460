// What the files of firstfault._core share.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "firstfault/present/html.h"
#include "firstfault/present/json.h"
#include "firstfault/present/text.h"

namespace firstfault::python {

namespace nb = nanobind;

void bind_cli(nb::module_& m);
void bind_experiment(nb::module_& m);
void bind_evidence(nb::module_& m);
void bind_origin(nb::module_& m);
void bind_run(nb::module_& m);
void bind_rows(nb::module_& m);
void bind_setup(nb::module_& m);
void bind_watch(nb::module_& m);

/// A Transition with the site it is about, so that it can be read by itself: Python's `Transition`.
struct SitedTransition {
  Transition transition;
  Site site;
};
std::vector<SitedTransition> transitions_of(const Run& run);

/// Absent in C++ is "", absent in Python is None.
inline std::optional<std::string> or_none(std::string_view text) {
  if (text.empty()) return std::nullopt;
  return std::string(text);
}

/// NaN that means "not measured" is None.
inline std::optional<double> measured_or_none(double value) {
  return std::isnan(value) ? std::nullopt : std::optional(value);
}

/// "not separable" -> "not_separable": as the JSON spells it.
inline std::string identifier(std::string_view name) {
  std::string text(name);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == ' ' || c == '-'; }, '_');
  return text;
}

inline nb::tuple to_tuple(const std::vector<std::int64_t>& numbers) {
  nb::list list;
  for (std::int64_t number : numbers) list.append(number);
  return nb::tuple(list);
}

/// As Python would print the string: quoted, control characters escaped.
inline std::string quoted(const std::string& text) { return nb::cast<std::string>(nb::repr(nb::cast(text))); }

inline std::string counted(std::int64_t n, const char* noun) {
  return std::to_string(n) + " " + noun + (n == 1 ? "" : "s");
}

template <typename T>
std::string json_of(const T& self, int indent) {
  return present::to_json(self, indent);
}
inline std::string json_of(const SitedTransition& self, int indent) {
  return present::to_json(self.transition, self.site, indent);
}

/// to_json() and to_dict(), which all of them have.
template <typename T>
void def_json(nb::class_<T>& type) {
  type.def(
      "to_json", [](const T& self, std::optional<int> indent) { return json_of(self, indent.value_or(-1)); },
      nb::arg("indent") = nb::none(), "The same facts as a JSON object; `indent` as in json.dumps.");
  type.def(
      "to_dict", [](const T& self) { return nb::module_::import_("json").attr("loads")(json_of(self, -1)); },
      nb::sig("def to_dict(self) -> dict"), "The JSON object as a dict.");
}

/// The views that an Origin, a Diagnosis, a Hypothesis and a Run have: str(), HTML in a notebook, and the JSON.
template <typename T>
void def_views(nb::class_<T>& type) {
  type.def("__str__", [](const T& self) { return present::to_text(self); });
  type.def("_repr_html_", [](const T& self) { return present::to_html(self); });
  def_json(type);
}

}  // namespace firstfault::python
