// What the files of firstfault._core share.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

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

void bind_evidence(nb::module_& m);
void bind_origin(nb::module_& m);
void bind_run(nb::module_& m);

/// Absent in C++ is "", absent in Python is None.
inline std::optional<std::string> or_none(std::string_view text) {
  if (text.empty()) return std::nullopt;
  return std::string(text);
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

/// The views that an Origin, a Diagnosis and a Run have: str(), HTML in a notebook, to_json() and to_dict().
template <typename T>
void def_views(nb::class_<T>& type) {
  type.def("__str__", [](const T& self) { return present::to_text(self); });
  type.def("_repr_html_", [](const T& self) { return present::to_html(self); });
  type.def(
      "to_json", [](const T& self, std::optional<int> indent) { return present::to_json(self, indent.value_or(-1)); },
      nb::arg("indent") = nb::none(), "The same facts as a JSON object; `indent` as in json.dumps.");
  type.def(
      "to_dict", [](const T& self) { return nb::module_::import_("json").attr("loads")(present::to_json(self)); },
      nb::sig("def to_dict(self) -> dict"), "The JSON object as a dict.");
}

}  // namespace firstfault::python
