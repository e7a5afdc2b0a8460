// Ordinary values for the operands of ops that have a domain: well inside of it, not at its edge.
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/all.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/isneginf.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/sign.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "firstfault/live/guard/experiments/op_repair.h"
#include "firstfault/live/intercept/op_traits.h"

namespace firstfault::guard {
namespace {

using Arguments = c10::ArrayRef<const c10::IValue>;

bool floating(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() && value.toTensor().is_floating_point();
}

// Of an expanded tensor the elements that exist.
at::Tensor base_of(at::Tensor tensor) {
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (tensor.stride(dim) == 0 && tensor.size(dim) > 1) tensor = tensor.narrow(dim, 0, 1);
  }
  return tensor;
}

std::int64_t put(const at::Tensor& into, const at::Tensor& value) {
  const std::int64_t changed = into.ne(value).sum().item<std::int64_t>();
  if (changed > 0) into.copy_(value);
  return changed;
}

double small(const at::Tensor& tensor) { return tensor.scalar_type() == at::kHalf ? 1e-2 : 1e-3; }

std::int64_t clamp(const c10::IValue& value, std::optional<double> least, std::optional<double> greatest) {
  if (!floating(value)) return 0;
  const at::Tensor tensor = base_of(value.toTensor());
  const std::optional<at::Scalar> low = least ? std::optional<at::Scalar>(*least) : std::nullopt;
  const std::optional<at::Scalar> high = greatest ? std::optional<at::Scalar>(*greatest) : std::nullopt;
  return put(tensor, at::clamp(tensor, low, high));
}

std::int64_t away_from_zero(const c10::IValue& value) {
  if (!floating(value)) return 0;
  const at::Tensor tensor = base_of(value.toTensor());
  const at::Tensor safe = at::where(tensor.lt(0), -small(tensor), small(tensor)).to(tensor.scalar_type());
  return put(tensor, at::where(tensor.abs().lt(small(tensor)), safe, tensor));
}

std::int64_t exponent(const c10::IValue& value) {
  if (!floating(value)) return 0;
  return clamp(value, std::nullopt, value.toTensor().scalar_type() == at::kHalf ? 4.0 : 10.0);
}

// Rows that are wholly masked see all.
std::int64_t unmask(const Arguments& arguments) {
  if (arguments.size() < 2 || !floating(arguments[0]) || !arguments[1].isInt()) return 0;
  const at::Tensor scores = arguments[0].toTensor();
  if (scores.dim() == 0) return 0;
  const at::Tensor dead = at::isneginf(scores).all(arguments[1].toInt(), /*keepdim=*/true);
  return put(scores, at::where(dead, at::zeros_like(scores), scores));
}

// Singular or eigenvalues apart from each other.
std::int64_t separate(const c10::IValue& value) {
  if (!floating(value) || value.toTensor().dim() < 2) return 0;
  const at::Tensor diagonal = value.toTensor().diagonal(0, -2, -1);
  diagonal.add_(at::arange(1, diagonal.size(-1) + 1, diagonal.options()).mul(small(diagonal)));
  return diagonal.numel();
}

// The first target counts.
std::int64_t keep_a_target(const Arguments& arguments) {
  if (arguments.size() < 5 || !arguments[4].isInt() || !arguments[1].isTensor()) return 0;
  const at::Tensor targets = arguments[1].toTensor();
  if (targets.numel() == 0 || !targets.eq(arguments[4].toInt()).all().item<bool>()) return 0;
  targets.flatten()[0].fill_(0);
  return 1;
}

std::int64_t power(const Arguments& arguments) {
  if (arguments.size() < 2 || !arguments[1].isScalar()) return 0;
  const double exponent = arguments[1].toScalar().toDouble();
  if (!floating(arguments[0])) return 0;
  if (exponent < 1) return clamp(arguments[0], small(arguments[0].toTensor()), std::nullopt);
  const bool half = arguments[0].toTensor().scalar_type() == at::kHalf;
  const double most = 0.5 * std::pow(half ? 65504.0 : 3.4e38, 1 / exponent);
  return clamp(arguments[0], -most, most);
}

using Repair = std::int64_t (*)(const Arguments&);

struct Domain {
  std::string_view op;
  Repair repair;
};

std::int64_t positive(const Arguments& a) {
  return floating(a[0]) ? clamp(a[0], small(a[0].toTensor()), std::nullopt) : 0;
}
std::int64_t above_minus_one(const Arguments& a) { return clamp(a[0], -1 + 1e-3, std::nullopt); }
std::int64_t inside_one(const Arguments& a) { return clamp(a[0], -1 + 1e-3, 1 - 1e-3); }
std::int64_t first_exponent(const Arguments& a) { return exponent(a[0]); }
std::int64_t divisor(const Arguments& a) { return a.size() > 1 ? away_from_zero(a[1]) : 0; }
std::int64_t first_divisor(const Arguments& a) { return away_from_zero(a[0]); }
std::int64_t third_divisor(const Arguments& a) { return a.size() > 2 ? away_from_zero(a[2]) : 0; }
std::int64_t logarithm(const Arguments& a) {
  return positive(a) + (a.size() > 1 && floating(a[1]) ? clamp(a[1], small(a[1].toTensor()), std::nullopt) : 0);
}
std::int64_t spread(const Arguments& a) { return separate(a[0]); }

constexpr Domain kDomains[] = {
    {"log", positive},
    {"log2", positive},
    {"log10", positive},
    {"log1p", above_minus_one},
    {"xlogy", logarithm},
    {"sqrt", positive},
    {"rsqrt", positive},
    {"reciprocal", positive},
    {"acos", inside_one},
    {"asin", inside_one},
    {"atanh", inside_one},
    {"pow", power},
    {"exp", first_exponent},
    {"expm1", first_exponent},
    {"sinh", first_exponent},
    {"cosh", first_exponent},
    {"div", divisor},
    {"addcdiv", third_divisor},
    {"norm", first_divisor},
    {"linalg_vector_norm", first_divisor},
    {"_softmax", unmask},
    {"_log_softmax", unmask},
    {"_safe_softmax", unmask},
    {"nll_loss_forward", keep_a_target},
    {"nll_loss2d_forward", keep_a_target},
    {"_linalg_svd", spread},
    {"_linalg_eigh", spread},
    {"linalg_qr", spread},
};

const Domain* domain_of(const std::string& op) {
  std::string_view name = intercept::base_name(op);
  if (name.size() > 1 && name.back() == '_' && name != "_") name.remove_suffix(1);
  for (const Domain& domain : kDomains) {
    if (domain.op == name) return &domain;
  }
  return nullptr;
}

}  // namespace

bool has_domain(const std::string& op) { return domain_of(op) != nullptr; }

std::int64_t make_ordinary(const std::string& op, Arguments arguments) {
  const Domain* domain = domain_of(op);
  return domain == nullptr || arguments.empty() ? 0 : domain->repair(arguments);
}

std::int64_t make_finite(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_floating_point() || tensor.layout() != at::kStrided) return 0;
  const double large = tensor.scalar_type() == at::kHalf ? 1e3 : 1e4;
  const at::Tensor values = base_of(tensor);
  return put(values, at::nan_to_num(values, 0.0, large, -large));
}

}  // namespace firstfault::guard
