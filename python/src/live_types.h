// What the files of firstfault._live share.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "firstfault/live/trace/tensor_names.h"
#include "python/src/live_tensor.h"

namespace firstfault::python {

/// (tensor, name, is_parameter, module)
inline trace::NamedTensor named_tensor(const nanobind::tuple& item) {
  namespace nb = nanobind;
  const auto role = nb::cast<bool>(item[2]) ? TensorRole::parameter : TensorRole::buffer;
  return {nb::cast<at::Tensor>(item[0]), nb::cast<std::string>(item[1]), role, nb::cast<int>(item[3])};
}

void bind_watch(nanobind::module_& m);
void bind_clip(nanobind::module_& m);
void bind_guard(nanobind::module_& m);
void bind_experiments(nanobind::module_& m);

}  // namespace firstfault::python
