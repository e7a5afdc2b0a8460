// The one file that includes libtorch_python's header.
#include "python/src/live_tensor.h"

#include <torch/csrc/autograd/python_variable.h>

namespace firstfault::python {

const at::Tensor* tensor_behind(PyObject* object) noexcept {
  try {
    return THPVariable_Check(object) ? &THPVariable_Unpack(object) : nullptr;
  } catch (...) {
    return nullptr;
  }
}

}  // namespace firstfault::python
