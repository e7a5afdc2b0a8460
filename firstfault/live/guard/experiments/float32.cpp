#include "firstfault/live/guard/experiments/float32.h"

#include <algorithm>

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>

namespace firstfault::guard {
namespace {

std::atomic<InFloat32*> current{nullptr};

bool is_low(const at::Tensor& tensor) {
  return tensor.defined() && (tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16);
}

bool gives_low(const std::vector<c10::IValue>& outputs) {
  return std::any_of(outputs.begin(), outputs.end(),
                     [](const c10::IValue& one) { return one.isTensor() && is_low(one.toTensor()); });
}

}  // namespace

bool InFloat32::any(const std::vector<at::Tensor>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), is_low);
}

BatchTensors InFloat32::widened(BatchTensors batch) {
  for (at::Tensor& tensor : batch) {
    if (!is_low(tensor)) continue;
    const bool graph = tensor.requires_grad();
    tensor = tensor.detach().to(at::kFloat).set_requires_grad(graph);
  }
  return batch;
}

void InFloat32::begin(const std::vector<at::Tensor>& tensors) {
  const at::DisableRecordFunctionGuard unobserved;
  const at::NoGradGuard no_grad;
  for (const at::Tensor& tensor : tensors) {
    if (!is_low(tensor)) continue;
    at::Tensor data = tensor.detach();
    tensor.mutable_grad() = at::Tensor();
    tensor.set_data(data.to(at::kFloat));
    kept_.emplace_back(tensor, std::move(data));
  }
  for (const auto device : {at::kCPU, at::kCUDA}) {
    casts_.emplace_back(device, at::autocast::get_autocast_dtype(device));
    at::autocast::set_autocast_dtype(device, at::kFloat);
  }
  low_ = false;
  current = this;
  handle_ = at::addGlobalCallback(
      at::RecordFunctionCallback(&on_start, &on_end).needsOutputs(true).scopes({at::RecordScope::FUNCTION}));
}

void InFloat32::end() {
  if (handle_ == 0) return;
  at::removeCallback(handle_);
  handle_ = 0;
  current = nullptr;
  for (const auto& [device, dtype] : casts_) at::autocast::set_autocast_dtype(device, dtype);
  for (const auto& [tensor, data] : kept_) {
    tensor.mutable_grad() = at::Tensor();
    tensor.set_data(data);
  }
  casts_.clear();
  kept_.clear();
}

std::unique_ptr<at::ObserverContext> InFloat32::on_start(const at::RecordFunction&) { return nullptr; }

void InFloat32::on_end(const at::RecordFunction& record, at::ObserverContext*) {
  InFloat32* self = current.load();
  if (self != nullptr && gives_low(record.outputs())) self->low_ = true;
}

}  // namespace firstfault::guard
