// firstfault._core: what reading and judging a run needs. Loads without torch.
#include <exception>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "firstfault/base/error.h"
#include "firstfault/reason/mechanisms/mechanism.h"
#include "firstfault/reason/rules/rule.h"
#include "python/src/core_types.h"

#include <nanobind/stl/map.h>

namespace firstfault::python {
namespace {

PyObject* exception_for(Error::Kind kind) {
  switch (kind) {
    case Error::Kind::untracked: return PyExc_KeyError;
    case Error::Kind::bad_value:
    case Error::Kind::unreadable: return PyExc_ValueError;
    case Error::Kind::no_file: return PyExc_FileNotFoundError;
    case Error::Kind::no_permission: return PyExc_PermissionError;
    case Error::Kind::misuse: break;
  }
  return PyExc_RuntimeError;
}

void translate(const std::exception_ptr& exception, void*) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    PyErr_SetString(exception_for(error.kind()), error.what());
  }
}

std::vector<std::map<std::string, std::string>> mechanisms() {
  std::vector<std::map<std::string, std::string>> known;
  for (const auto& one : reason::mechanisms()) {
    known.push_back({{"name", std::string(one.name)},
                     {"condition", std::string(one.condition)},
                     {"cause", std::string(one.cause)},
                     {"reading", std::string(one.reading)},
                     {"remedy", std::string(one.remedy)}});
  }
  return known;
}

std::vector<std::map<std::string, std::string>> rules() {
  std::vector<std::map<std::string, std::string>> known;
  for (const auto& one : reason::rules()) {
    known.push_back({{"name", std::string(one.name)},
                     {"symptom", std::string(one.symptom)},
                     {"condition", one.condition()},
                     {"evidence", std::string(one.evidence)},
                     {"advice", std::string(one.advice)},
                     {"source", std::string(one.source)}});
  }
  return known;
}

}  // namespace
}  // namespace firstfault::python

NB_MODULE(_core, m) {
  // Objects that still live when the interpreter ends are no error of the program's.
  nanobind::set_leak_warnings(false);
  using namespace firstfault::python;
  m.attr("__version__") = FIRSTFAULT_VERSION;
  nanobind::register_exception_translator(&translate);
  bind_cli(m);
  bind_evidence(m);
  bind_experiment(m);
  bind_origin(m);
  bind_rows(m);
  bind_setup(m);
  bind_watch(m);
  bind_run(m);
  m.def("mechanisms", &mechanisms,
        "Every mechanism, in the order in which they are asked: name, condition, cause, reading, remedy.");
  m.def("rules", &rules,
        "Every rule, in the order in which they are asked: name (the cause), symptom, condition, evidence, advice, "
        "source.");
}
