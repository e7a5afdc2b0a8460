#include "firstfault/live/guard/experiments/rows.h"

#include <algorithm>
#include <map>

#include <ATen/ops/cat.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

namespace firstfault::guard {
namespace {

at::Tensor index_of(const std::vector<std::int64_t>& rows, const at::Tensor& like) {
  return at::tensor(rows, at::TensorOptions().dtype(at::kLong)).to(like.device());
}

at::Tensor again(const at::Tensor& made, const at::Tensor& of) {
  return of.requires_grad() ? made.detach().requires_grad_(true) : made;
}

}  // namespace

bool Rows::alike(const BatchTensors& batch, const BatchTensors& other) const {
  if (batch.size() != other.size()) return false;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (axis[i] < 0) continue;
    if (!other[i].defined() || batch[i].sizes() != other[i].sizes()) return false;
    if (batch[i].scalar_type() != other[i].scalar_type() || batch[i].device() != other[i].device()) return false;
  }
  return true;
}

Rows rows_of(const BatchTensors& batch) {
  std::map<std::int64_t, int> lengths;
  Rows rows;
  int most = 0;
  for (const at::Tensor& tensor : batch) {
    if (tensor.defined() && tensor.dim() > 0 && tensor.layout() == at::kStrided) ++lengths[tensor.size(0)];
  }
  for (const at::Tensor& tensor : batch) {  // of equally common ones the first
    if (!tensor.defined() || tensor.dim() == 0 || tensor.layout() != at::kStrided) continue;
    if (lengths[tensor.size(0)] > most) most = lengths[tensor.size(0)], rows.count = tensor.size(0);
  }
  for (const at::Tensor& tensor : batch) {
    const bool has = tensor.defined() && tensor.layout() == at::kStrided && rows.count > 0;
    const auto lies = [&](int axis) { return has && tensor.dim() > axis && tensor.size(axis) == rows.count; };
    rows.axis.push_back(lies(0) ? 0 : lies(1) ? 1 : -1);
  }
  return rows;
}

BatchTensors with_rows_of(const BatchTensors& batch, const BatchTensors& other, const Rows& rows,
                          const std::vector<std::int64_t>& kept) {
  BatchTensors made;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (rows.axis[i] < 0) {
      made.push_back(batch[i]);
      continue;
    }
    at::Tensor mixed = other[i].detach().clone();
    if (!kept.empty()) {
      const at::Tensor index = index_of(kept, mixed);
      mixed.index_copy_(rows.axis[i], index, batch[i].detach().index_select(rows.axis[i], index));
    }
    made.push_back(again(mixed, batch[i]));
  }
  return made;
}

BatchTensors only_rows(const BatchTensors& batch, const Rows& rows, const std::vector<std::int64_t>& kept) {
  BatchTensors made;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const at::Tensor& tensor = batch[i];
    made.push_back(
        rows.axis[i] < 0 ? tensor : again(tensor.detach().index_select(rows.axis[i], index_of(kept, tensor)), tensor));
  }
  return made;
}

BatchTensors appended(const BatchTensors& batch, const BatchTensors& other, const Rows& rows) {
  if (batch.size() != other.size()) return {};
  BatchTensors made;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (rows.axis[i] < 0) {
      made.push_back(batch[i]);
      continue;
    }
    if (!other[i].defined() || other[i].dim() != batch[i].dim()) return {};
    if (other[i].scalar_type() != batch[i].scalar_type()) return {};
    for (std::int64_t dim = 0; dim < batch[i].dim(); ++dim) {
      if (dim != rows.axis[i] && other[i].size(dim) != batch[i].size(dim)) return {};
    }
    made.push_back(again(at::cat({batch[i].detach(), other[i].detach()}, rows.axis[i]), batch[i]));
  }
  return made;
}

}  // namespace firstfault::guard
