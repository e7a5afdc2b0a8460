// The tracer's part in following the batch axis: where it enters a step, and what contradicts it.
#include "firstfault/live/trace/tracer_detail.h"

namespace firstfault::trace {

void Tracer::read_batch_size(const Frame& frame) {
  if (puts_time_first(frame)) batch_void_.store(true, std::memory_order_relaxed);
  if (batch_size_.load(std::memory_order_relaxed) > 0) return;
  const auto size = batch_size_read(frame);
  if (!size || *size <= 0) return;
  const std::lock_guard lock(intercept::observer_mutex());
  model_start_ = frame.number;
  batch_size_.store(*size, std::memory_order_relaxed);
}

BatchDims Tracer::batch_dims(const Frame& frame) {
  BatchDims dims;
  const bool of_use = frame.traits->batch != intercept::BatchRule::unknown && batch_size_.load() > 0;
  if (!of_use || batch_void_.load(std::memory_order_relaxed) || optimizer_open_.load(std::memory_order_relaxed)) {
    return dims;
  }
  bool any = false;
  for (const Input& input : frame.inputs) {
    dims.push_back(batch_dim_of(input.tensor, input.floating));
    any |= dims.back().has_value();
  }
  if (!any) dims.clear();
  return dims;
}

// A tensor that was there before the model ran is taken to hold the batch in dim 0; one whose dim 0 is no multiple of
// the batch says that the batch lies elsewhere, and no sample of this step is named.
std::optional<BatchDim> Tracer::batch_dim_of(const at::Tensor& tensor, bool floating) {
  const auto size = batch_size_.load(std::memory_order_relaxed);
  if (size == 0 || tensor.dim() == 0 || tensor.numel() <= 1) return std::nullopt;
  const auto* storage = tensor.storage().unsafeGetStorageImpl();
  if (floating) {
    const Slot* slot = slots_.find(storage);
    if (slot && slot->batch.known()) return slot->batch.size == size ? batch_dim(tensor, slot->batch) : std::nullopt;
    if (slot && slot->written >= model_start_) return std::nullopt;
  }
  if (intercept::frames().in_backward() || names_.watches_storage(storage) || is_parameter_view(tensor)) {
    return std::nullopt;
  }
  if (tensor.size(0) == size) return BatchDim{0, 1};
  const bool flattened = tensor.size(0) % size == 0;
  if (!flattened && tensor.size(0) != 1 && floating) batch_void_.store(true, std::memory_order_relaxed);
  return std::nullopt;
}

}  // namespace firstfault::trace
