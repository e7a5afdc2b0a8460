#include "firstfault/live/guard/batch_memory.h"

#include <algorithm>
#include <cmath>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_to_copy.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/where.h>
#include <ATen/record_function.h>

namespace firstfault::guard {
namespace {

constexpr std::int64_t kEveryUntil = 32;
constexpr std::int64_t kThenEvery = 8;

std::optional<BatchMemory::Range> range_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cpu() || tensor.layout() != at::kStrided || tensor.numel() == 0) return {};
  if (tensor.is_complex() || tensor.scalar_type() == at::kBool) return {};
  const auto [least, greatest] = at::aminmax(tensor.detach());
  const auto number = [](const at::Tensor& one) { return at::_to_copy(one, at::kDouble).item<double>(); };
  const BatchMemory::Range range{number(least), number(greatest)};
  if (!std::isfinite(range.least) || !std::isfinite(range.greatest)) return {};
  return range;
}

}  // namespace

void BatchMemory::remember(const BatchTensors& batch) {
  last_ = batch;
  versions_.clear();
  for (const at::Tensor& tensor : batch) versions_.push_back(version_of(tensor));
  if (seen_ < kEveryUntil || seen_ % kThenEvery == 0) widen(batch);
  ++seen_;
}

void BatchMemory::widen(const BatchTensors& batch) {
  const at::NoGradGuard no_grad;
  const at::DisableRecordFunctionGuard unobserved;
  if (batches_ == 0) ranges_.resize(batch.size());
  if (ranges_.size() != batch.size()) return;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const auto range = range_of(batch[i]);
    if (!range) continue;  // NaN may be meant: what else it holds is not known then
    if (!ranges_[i]) ranges_[i] = range;
    ranges_[i]->least = std::min(ranges_[i]->least, range->least);
    ranges_[i]->greatest = std::max(ranges_[i]->greatest, range->greatest);
  }
  ++batches_;
}

BatchTensors BatchMemory::previous() const {
  for (std::size_t i = 0; i < last_.size(); ++i) {
    if (version_of(last_[i]) != versions_[i]) return {};
  }
  return last_;
}

at::Tensor clipped_to(const std::optional<BatchMemory::Range>& range, const at::Tensor& tensor, bool whole) {
  constexpr double kMargin = 0.5;  // of the width of the range
  if (!range || !tensor.defined() || tensor.layout() != at::kStrided || tensor.numel() == 0) return {};
  if (tensor.is_complex() || tensor.scalar_type() == at::kBool || tensor.is_floating_point() == whole) return {};
  const double width = range->greatest - range->least;
  if (!whole && width == 0) return {};
  const double margin = whole ? 0 : kMargin * width;
  const at::Tensor values = tensor.detach();
  const at::Tensor made =
      whole
          ? at::clamp(values, static_cast<std::int64_t>(range->least), static_cast<std::int64_t>(range->greatest))
          : at::where(at::isfinite(values), at::clamp(values, range->least - margin, range->greatest + margin), values);
  const auto unequal = [](const at::Tensor& a, const at::Tensor& b) { return a.ne(b).sum().item<std::int64_t>(); };
  return unequal(made, values) > unequal(values, values) ? made.to(values.scalar_type()) : at::Tensor();
}

}  // namespace firstfault::guard
