// firstfault._live: clipping. No logic here.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <sstream>

#include <ATen/EmptyTensor.h>

#include "firstfault/live/guard/adaptive_clip.h"
#include "firstfault/live/guard/clip.h"
#include "python/src/live_tensor.h"
#include "python/src/live_types.h"

namespace nb = nanobind;

namespace firstfault::python {
namespace {

// Gradients of a Python list of tensors, without copies of the list or calls into Python.
struct Listed {
  std::vector<at::Tensor> tensors;
  bool wrapped = false;  // a gradient is a Python subclass with its own dispatch, such as DTensor
  std::optional<at::ScalarType> type;
  at::Device device = at::kCPU;
};

const at::Tensor& tensor_at(PyObject* item) {
  if (const at::Tensor* tensor = tensor_behind(item)) return *tensor;
  throw nb::type_error("firstfault: clipping takes tensors");
}

// `of_parameters`: the list holds parameters, else gradients (or None).
Listed gradients_in(const nb::list& list, bool of_parameters) {
  Listed listed;
  listed.tensors.reserve(list.size());
  for (const nb::handle item : list) {
    at::Tensor gradient;
    if (of_parameters) {
      gradient = tensor_at(item.ptr()).grad();
    } else if (!item.is_none()) {
      gradient = tensor_at(item.ptr());
    }
    if (gradient.defined()) {
      if (!listed.type) listed.device = gradient.device();
      const auto type = c10::toRealValueType(gradient.scalar_type());
      listed.type = listed.type ? c10::promoteTypes(*listed.type, type) : type;
      listed.wrapped |= gradient.key_set().has(c10::DispatchKey::Python);
    }
    listed.tensors.push_back(std::move(gradient));
  }
  return listed;
}

OnNonfinite policy_of(const std::string& name) {
  if (name == "error") return OnNonfinite::error;
  if (name == "skip") return OnNonfinite::skip;
  if (name == "zero") return OnNonfinite::zero;
  throw nb::value_error("firstfault: on_nonfinite takes \"error\", \"skip\" or \"zero\"");
}

// In the dtype of torch's own, or the least one above it that holds the number.
nb::object scalar(double value, at::ScalarType type, at::Device device) {
  const auto fits = [&](double most) { return !(std::abs(value) > most) || std::isinf(value); };
  if (type == at::kHalf && !fits(65504)) type = at::kFloat;
  if ((type == at::kFloat || type == at::kBFloat16) && !fits(std::numeric_limits<float>::max())) type = at::kDouble;
  at::Tensor tensor = at::detail::empty_cpu({}, type);
  switch (type) {
    case at::kDouble: *tensor.mutable_data_ptr<double>() = value; break;
    case at::kHalf: *tensor.mutable_data_ptr<at::Half>() = static_cast<float>(value); break;
    case at::kBFloat16: *tensor.mutable_data_ptr<at::BFloat16>() = static_cast<float>(value); break;
    default: *tensor.mutable_data_ptr<float>() = static_cast<float>(value);
  }
  return python_tensor(device.is_cpu() ? std::move(tensor) : tensor.to(device));
}

ClipOptions options_of(double norm_type, const std::string& on_nonfinite, double lr, const nb::object& names) {
  ClipOptions options{norm_type, policy_of(on_nonfinite), lr};
  if (!names.is_none()) options.names = nb::cast<std::vector<std::string>>(names);
  return options;
}

// (norm as a tensor, record); None where a gradient is a subclass of Python's: nothing was done then.
nb::object clip_norm(const nb::list& parameters, double max_norm, double norm_type, const std::string& on_nonfinite,
                     double lr, const nb::object& names) {
  Listed listed = gradients_in(parameters, /*of_parameters=*/true);
  if (listed.wrapped) return nb::none();
  const auto options = options_of(norm_type, on_nonfinite, lr, names);
  ClipRecord record;
  std::optional<GradientNorm> norm;  // lets go of the tensors with the interpreter's lock held
  {
    const nb::gil_scoped_release unlocked;
    norm.emplace(std::move(listed.tensors), options);
    record = norm->clip(max_norm);
  }
  auto total = record.pending() ? python_tensor(record.later->total)
                                : scalar(record.norm, listed.type.value_or(at::kFloat), listed.device);
  return nb::make_tuple(total, std::move(record));
}

std::vector<at::Tensor> tensors_in(const nb::list& list) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(list.size());
  for (const nb::handle item : list) tensors.push_back(tensor_at(item.ptr()));
  return tensors;
}

ClipRecord clip_value(const nb::list& parameters, double value, const std::string& on_nonfinite,
                      const nb::object& names) {
  const auto tensors = tensors_in(parameters);
  const auto options = options_of(2, on_nonfinite, ClipRecord::kUnknown, names);
  const nb::gil_scoped_release unlocked;
  return clip_grad_value_(tensors, value, options);
}

ClipRecord clip_units(const nb::list& parameters, double clip_factor, double eps, const std::string& on_nonfinite,
                      const nb::object& names) {
  const auto tensors = tensors_in(parameters);
  const auto options = options_of(2, on_nonfinite, ClipRecord::kUnknown, names);
  const nb::gil_scoped_release unlocked;
  return clip_grad_units_(tensors, {clip_factor, eps}, options);
}

nb::object clip_adaptive(AdaptiveClip& self, const nb::list& parameters, const std::string& on_nonfinite, double lr,
                         const nb::object& names) {
  const Listed listed = gradients_in(parameters, /*of_parameters=*/true);
  const auto tensors = tensors_in(parameters);
  const auto options = options_of(2, on_nonfinite, lr, names);
  ClipRecord record;
  {
    const nb::gil_scoped_release unlocked;
    record = self.clip(tensors, options);
  }
  return nb::make_tuple(scalar(record.norm, listed.type.value_or(at::kFloat), listed.device), std::move(record));
}

// The two halves, for gradients whose ranks must agree first.
std::unique_ptr<GradientNorm> measure(const nb::list& gradients, double norm_type, const std::string& on_nonfinite,
                                      double lr, const nb::object& names) {
  Listed listed = gradients_in(gradients, /*of_parameters=*/false);
  return std::make_unique<GradientNorm>(std::move(listed.tensors), options_of(norm_type, on_nonfinite, lr, names));
}

nb::object clip_measured(GradientNorm& self, double max_norm, double total) {
  auto record = self.clip(max_norm, total);
  return nb::make_tuple(scalar(record.norm, at::kFloat, at::kCPU), std::move(record));
}

std::string text_of(const ClipRecord& record) {
  std::ostringstream out;
  out << record;
  return out.str();
}

void bind_records(nb::module_& m) {
  nb::class_<ClipShare>(m, "ClipShare")
      .def_ro("index", &ClipShare::index)
      .def_ro("name", &ClipShare::name)
      .def_ro("norm", &ClipShare::norm)
      .def_ro("share", &ClipShare::share);
  nb::class_<BadGradient>(m, "BadGradient")
      .def_ro("index", &BadGradient::index)
      .def_ro("name", &BadGradient::name)
      .def_ro("elements", &BadGradient::elements)
      .def_ro("counts", &BadGradient::counts);
  // Reading what is pending is part of each property: a record in Python is always complete.
  const auto read = [](ClipRecord& record) -> ClipRecord& {
    record.read();
    return record;
  };
  nb::class_<ClipRecord>(m, "ClipRecord")
      .def_prop_ro("norm", [read](ClipRecord& self) { return read(self).norm; })
      .def_ro("norm_type", &ClipRecord::norm_type)
      .def_ro("limit", &ClipRecord::limit)
      .def_prop_ro("coefficient", [read](ClipRecord& self) { return read(self).coefficient; })
      .def_ro("angle", &ClipRecord::angle)
      .def_prop_ro("step", [read](ClipRecord& self) { return read(self).step; })
      .def_prop_ro("parts", [read](ClipRecord& self) { return read(self).parts; })
      .def_prop_ro("clipped_parts", [read](ClipRecord& self) { return read(self).clipped_parts; })
      .def_prop_ro("largest", [read](ClipRecord& self) { return read(self).largest; })
      .def_prop_ro("nonfinite", [read](ClipRecord& self) { return read(self).nonfinite; })
      .def_prop_ro("skipped", [read](ClipRecord& self) { return read(self).skipped; })
      .def_prop_ro("zeroed", [read](ClipRecord& self) { return read(self).zeroed; })
      .def_prop_ro("clipped", [read](ClipRecord& self) { return read(self).clipped(); })
      .def_prop_ro("pending", &ClipRecord::pending)
      .def("__str__", [read](ClipRecord& self) { return text_of(read(self)); })
      .def("__repr__", [](const ClipRecord& self) { return "<firstfault.ClipRecord " + text_of(self) + ">"; });
}

}  // namespace

void bind_clip(nb::module_& m) {
  bind_records(m);
  m.def("clip_norm", &clip_norm, nb::arg("parameters"), nb::arg("max_norm"), nb::arg("norm_type"),
        nb::arg("on_nonfinite"), nb::arg("lr"), nb::arg("names").none());
  m.def("clip_value", &clip_value, nb::arg("parameters"), nb::arg("clip_value"), nb::arg("on_nonfinite"),
        nb::arg("names").none());
  m.def("clip_units", &clip_units, nb::arg("parameters"), nb::arg("clip_factor"), nb::arg("eps"),
        nb::arg("on_nonfinite"), nb::arg("names").none());
  nb::class_<GradientNorm>(m, "GradientNorm")
      .def(nb::new_(&measure), nb::arg("gradients"), nb::arg("norm_type"), nb::arg("on_nonfinite"), nb::arg("lr"),
           nb::arg("names").none())
      .def("norms", &GradientNorm::norms)
      .def("clip", &clip_measured, nb::arg("max_norm"), nb::arg("total"));
  nb::class_<AdaptiveClip>(m, "AdaptiveClip")
      .def(
          "__init__",
          [](AdaptiveClip* self, double z, std::size_t window, double max_norm) {
            new (self) AdaptiveClip({z, window, max_norm});
          },
          nb::arg("z"), nb::arg("window"), nb::arg("max_norm"))
      .def("clip", &clip_adaptive, nb::arg("parameters"), nb::arg("on_nonfinite"), nb::arg("lr"),
           nb::arg("names").none())
      .def("remember", &AdaptiveClip::remember, nb::arg("norm"))
      .def_prop_ro("limit", &AdaptiveClip::limit)
      .def_prop_ro("history", &AdaptiveClip::history)
      .def(
          "restore", [](AdaptiveClip& self, const std::vector<double>& history) { self.restore(history); },
          nb::arg("history"));
}

}  // namespace firstfault::python
