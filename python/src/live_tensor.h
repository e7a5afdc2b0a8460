// torch.Tensor -> at::Tensor without torch/extension.h, which costs 26 s a file.
#pragma once

#include <nanobind/nanobind.h>

#include <ATen/core/Tensor.h>

namespace firstfault::python {

/// nullptr: not a torch.Tensor. The interpreter's lock is held.
const at::Tensor* tensor_behind(PyObject* object) noexcept;
/// at::Tensor -> torch.Tensor. The interpreter's lock is held.
nanobind::object python_tensor(at::Tensor tensor);

}  // namespace firstfault::python

namespace nanobind::detail {

template <>
struct type_caster<at::Tensor> {
  NB_TYPE_CASTER(at::Tensor, const_name("torch.Tensor"))

  bool from_python(handle source, std::uint8_t, cleanup_list*) noexcept {
    const at::Tensor* tensor = firstfault::python::tensor_behind(source.ptr());
    if (tensor) value = *tensor;
    return tensor != nullptr;
  }
};

}  // namespace nanobind::detail
