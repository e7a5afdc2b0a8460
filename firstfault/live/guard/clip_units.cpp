// Adaptive gradient clipping: by the norm of each unit's weights.
#include <algorithm>
#include <cmath>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>

#include "firstfault/base/error.h"
#include "firstfault/base/numbers.h"
#include "firstfault/live/guard/clip.h"
#include "firstfault/live/guard/devices.h"
#include "firstfault/live/guard/record.h"

namespace firstfault {
namespace guard {
namespace {

constexpr const char* kWhere = "clip_grad_units_";

// Weights and gradient of one parameter, unit by unit.
struct Units {
  at::Tensor weights;         // of a sparse gradient: the rows that it has
  std::vector<double> norms;  // of the gradient's units
  std::vector<double> coefficients;
  at::Tensor on_device;  // the coefficients, shaped to multiply with, where ATen does it
};

std::int64_t count_of(const at::Tensor& values) { return values.dim() <= 1 ? 1 : values.size(0); }

// The memory of one unit: a slice along dim 0.
measure::Memory unit_of(const measure::Memory& memory, std::int64_t unit) {
  if (memory.sizes.size() <= 1) return memory;
  measure::Memory slice = memory;
  slice.sizes = memory.sizes.slice(1);
  slice.strides = memory.strides.slice(1);
  slice.numel = memory.numel / memory.sizes[0];
  slice.data += unit * memory.strides[0] * static_cast<std::int64_t>(c10::elementSize(memory.type));
  slice.dense = memory.dense && memory.strides[0] == slice.numel;
  return slice;
}

double norm_of(const Gradient& tensor, std::int64_t unit) {
  const auto memory = unit_of(tensor.memory, unit);
  double squares = 0, largest = 0, norm = 0;
  for_each_run(memory,
               [&](const std::byte* data, std::size_t n) { squares += sum_of_squares(tensor.number, data, n); });
  if (tensor.number != Number::fp64 || (std::isfinite(squares) && squares > kLeastSquares)) return std::sqrt(squares);
  for_each_run(memory, [&](const std::byte* data, std::size_t n) {
    largest = norm_of_norms({largest, largest_magnitude(tensor.number, data, n)}, kInfinity);
  });
  if (!(largest > 0) || !std::isfinite(largest)) return largest;
  for_each_run(
      memory, [&](const std::byte* data, std::size_t n) { norm += sum_of_powers(tensor.number, data, n, largest, 2); });
  return largest * std::sqrt(norm);
}

double coefficient_of(double gradient, double weight, const UnitClipOptions& units) {
  const double most = units.clip_factor * std::max(weight, units.eps);
  return gradient > most ? most / std::max(gradient, kNormEps) : 1;
}

// Of a sparse gradient the units are rows: only along its first dim.
at::Tensor weights_for(const at::Tensor& parameter, const Gradient& gradient) {
  if (gradient.tensor.layout() == at::kStrided) return parameter;
  if (gradient.tensor.layout() != at::kSparse || gradient.tensor.sparse_dim() != 1 || parameter.dim() < 2) {
    throw Error("firstfault: clip_grad_units_: the gradient of parameter " + std::to_string(gradient.index) +
                " is sparse in a way that has no units; only rows of a matrix are supported.");
  }
  const auto& sparse = gradient.summed.defined() ? gradient.summed : gradient.tensor;
  return parameter.index_select(0, sparse._indices()[0]);
}

at::Tensor unit_norms(const at::Tensor& tensor) {
  std::vector<std::int64_t> dims;
  for (std::int64_t d = tensor.dim() <= 1 ? 0 : 1; d < tensor.dim(); ++d) dims.push_back(d);
  return at::linalg_vector_norm(tensor, 2, dims, /*keepdim=*/true, tensor.is_mps() ? at::kFloat : at::kDouble);
}

void measure_by_aten(Units& units, const Gradient& gradient, const UnitClipOptions& options) {
  const auto norms = unit_norms(gradient.values);
  const auto most = unit_norms(units.weights).clamp_min(options.eps).mul(options.clip_factor);
  const auto factor = most.div(norms.clamp_min(kNormEps)).clamp_max(1);
  units.on_device = at::stack({norms.flatten(), factor.flatten()});
}

Units measure_units(const at::Tensor& parameter, Gradient& gradient, const UnitClipOptions& options) {
  Units units;
  units.weights = weights_for(parameter, gradient);
  Gradient weights;
  weights.values = units.weights;
  if (gradient.in_memory()) find_memory(weights);
  if (!weights.in_memory()) {
    gradient.memory = {};
    measure_by_aten(units, gradient, options);
    return units;
  }
  for (std::int64_t u = 0; u < count_of(gradient.values); ++u) {
    units.norms.push_back(norm_of(gradient, u));
    units.coefficients.push_back(coefficient_of(units.norms.back(), norm_of(weights, u), options));
  }
  return units;
}

// One transfer for all of them.
void fetch(std::vector<Units>& all) {
  std::vector<at::Tensor> flat;
  for (const Units& units : all) {
    if (!units.on_device.defined()) continue;
    const auto one = units.on_device.flatten();
    flat.push_back(flat.empty() ? one : one.to(flat.front().device(), /*non_blocking=*/true));
  }
  if (flat.empty()) return;
  const auto host = fetched(at::cat(flat));
  const double* at = host.data();
  for (Units& units : all) {
    if (!units.on_device.defined()) continue;
    const auto count = units.on_device.size(1);
    units.norms.assign(at, at + count);
    units.coefficients.assign(at + count, at + 2 * count);
    at += 2 * count;
  }
}

void scale_units(Gradient& gradient, const Units& units) {
  const auto& c = units.coefficients;
  if (std::all_of(c.begin(), c.end(), [](double one) { return !(one < 1); })) return;
  if (units.on_device.defined()) {
    std::vector<std::int64_t> shape(static_cast<std::size_t>(std::max<std::int64_t>(gradient.values.dim(), 1)), 1);
    shape[0] = static_cast<std::int64_t>(c.size());
    if (gradient.values.dim() == 0) shape.clear();
    gradient.values.mul_(units.on_device[1].reshape(shape).to(type_of_factor(gradient.values.scalar_type())));
  } else {
    if (!gradient.summed.defined()) make_writable(gradient);
    for (std::size_t u = 0; u < c.size(); ++u) {
      if (!(c[u] < 1)) continue;
      for_each_run(unit_of(gradient.memory, static_cast<std::int64_t>(u)),
                   [&](std::byte* data, std::size_t n) { scale(gradient.number, data, n, c[u]); });
    }
  }
  if (gradient.summed.defined()) gradient.tensor.copy_(gradient.summed);
}

// By unit what was there, what is left, and their inner product; in parts of the largest squared.
void add(const Units& units, double unit, Clamped& sums) {
  for (std::size_t u = 0; u < units.norms.size(); ++u) {
    const double norm = units.norms[u] / unit, c = units.coefficients[u];
    sums.before += norm * norm;
    sums.after += c * norm * c * norm;
    sums.across += c * norm * norm;
    sums.changed += c < 1;
  }
}

void clip_units(std::vector<Gradient>& gradients, const std::vector<Units>& all, const std::vector<double>& norms,
                ClipRecord& record) {
  const at::NoGradGuard no_grad;
  const double most = norm_of_norms(norms, kInfinity);
  Clamped sums;
  record.parts = 0;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    record.parts += static_cast<std::int64_t>(all[i].norms.size());
    if (norms[i] == 0) continue;
    add(all[i], most, sums);
    for (const double c : all[i].coefficients) record.coefficient = std::min(record.coefficient, c);
    scale_units(gradients[i], all[i]);
  }
  record.clipped_parts = sums.changed;
  record.angle = angle_of(sums);
}

void check_units(const UnitClipOptions& units, const ClipOptions& options) {
  check(units.clip_factor, options, kWhere);
  if (units.eps >= 0) return;
  throw Error(
      "firstfault: clip_grad_units_: eps is " + show_number(units.eps) + "; it takes a number that is not negative.",
      Error::Kind::bad_value);
}

}  // namespace
}  // namespace guard

ClipRecord clip_grad_units_(at::TensorList parameters, const UnitClipOptions& units, const ClipOptions& options) {
  const at::NoGradGuard no_grad;
  guard::check_units(units, options);
  const auto given = guard::gradients_of(parameters);
  auto gradients = guard::collect(given, options.by_aten);
  std::vector<guard::Units> all;
  for (auto& gradient : gradients) {
    all.push_back(guard::measure_units(parameters[static_cast<std::size_t>(gradient.index)], gradient, units));
  }
  guard::fetch(all);
  std::vector<double> norms;
  for (const auto& one : all) norms.push_back(guard::norm_of_norms(one.norms, 2));
  ClipRecord record;
  record.limit = units.clip_factor;
  const guard::Measured measured{gradients, norms, 2};
  guard::fill(record, measured, options);
  if (guard::settle_nonfinite(record, measured, options.on_nonfinite, guard::kWhere)) {
    guard::clip_units(gradients, all, norms, record);
  }
  guard::tell_listeners(record, given);
  return record;
}

}  // namespace firstfault
