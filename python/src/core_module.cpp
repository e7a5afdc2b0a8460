// firstfault._core: what reading and judging a run needs. Loads without torch.
#include <exception>
#include <utility>

#include "firstfault/base/error.h"
#include "firstfault/reason/mechanisms/mechanism.h"
#include "python/src/core_types.h"

#include <nanobind/stl/pair.h>

namespace firstfault::python {
namespace {

PyObject* exception_for(Error::Kind kind) {
  switch (kind) {
    case Error::Kind::untracked: return PyExc_KeyError;
    case Error::Kind::bad_value: return PyExc_ValueError;
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

std::vector<std::pair<std::string, std::string>> mechanisms() {
  std::vector<std::pair<std::string, std::string>> names;
  for (const auto& mechanism : reason::mechanisms()) names.emplace_back(mechanism.name, mechanism.condition);
  return names;
}

}  // namespace
}  // namespace firstfault::python

NB_MODULE(_core, m) {
  // Objects that still live when the interpreter ends are no error of the program's.
  nanobind::set_leak_warnings(false);
  using namespace firstfault::python;
  m.attr("__version__") = FIRSTFAULT_VERSION;
  nanobind::register_exception_translator(&translate);
  bind_evidence(m);
  bind_origin(m);
  bind_run(m);
  m.def("mechanisms", &mechanisms, "(name, condition) of every mechanism, in the order in which they are asked.");
}
