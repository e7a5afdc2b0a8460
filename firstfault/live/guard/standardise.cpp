#include "firstfault/live/guard/standardise.h"

#include <algorithm>

#include <ATen/ops/isfinite.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/record_function.h>

namespace firstfault::guard {
namespace {

bool has_rows(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_floating_point() && tensor.layout() == at::kStrided && tensor.dim() >= 1 &&
         tensor.size(0) >= 2 && !tensor.is_meta();
}

std::optional<std::pair<at::Tensor, at::Tensor>> statistics(const at::Tensor& tensor) {
  if (!has_rows(tensor) || !at::isfinite(tensor).all().item<bool>()) return {};
  const at::Tensor values = tensor.detach().to(at::kDouble);
  std::vector<std::int64_t> along(tensor.dim() <= 2 ? 1 : static_cast<std::size_t>(tensor.dim()));
  for (std::size_t i = 0; i < along.size(); ++i) along[i] = static_cast<std::int64_t>(i);
  const at::Tensor deviation = values.std(along, 1, true);
  return std::pair(values.mean(along, true), at::where(deviation.gt(0), deviation, at::ones_like(deviation)));
}

}  // namespace

Standardiser::Standardiser(const BatchTensors& batch) {
  const at::DisableRecordFunctionGuard unobserved;
  for (const at::Tensor& tensor : batch) known_.push_back(statistics(tensor));
}

bool Standardiser::any() const noexcept {
  return std::any_of(known_.begin(), known_.end(), [](const auto& one) { return one.has_value(); });
}

BatchTensors Standardiser::operator()(BatchTensors batch) const {
  const at::DisableRecordFunctionGuard unobserved;
  for (std::size_t i = 0; i < std::min(batch.size(), known_.size()); ++i) {
    if (!known_[i] || !batch[i].defined()) continue;
    const auto& [mean, deviation] = *known_[i];
    const at::Tensor made = batch[i].to(at::kDouble).sub(mean).div(deviation).to(batch[i].scalar_type());
    batch[i] = batch[i].requires_grad() ? made.detach().requires_grad_(true) : made;
  }
  return batch;
}

}  // namespace firstfault::guard
