// The one file that includes libtorch_python's header.
#include "python/src/live_tensor.h"

#include <utility>

#include <torch/csrc/autograd/python_variable.h>

namespace firstfault::python {

const at::Tensor* tensor_behind(PyObject* object) noexcept {
  try {
    return THPVariable_Check(object) ? &THPVariable_Unpack(object) : nullptr;
  } catch (...) {
    return nullptr;
  }
}

nanobind::object python_tensor(at::Tensor tensor) {
  PyObject* object = THPVariable_Wrap(std::move(tensor));
  if (!object) nanobind::raise_python_error();
  return nanobind::steal(object);
}

}  // namespace firstfault::python
