// Lookup of watched tensors by identity.
#include "firstfault/live/trace/tensor_names.h"

#include "firstfault/live/measure/scan.h"

namespace firstfault::trace {
namespace {

std::uintptr_t storage_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return 0;
  if (tensor.has_storage()) return reinterpret_cast<std::uintptr_t>(tensor.storage().unsafeGetStorageImpl());
  const at::Tensor values = measure::explicit_values(tensor);  // a sparse gradient
  return values.defined() ? storage_of(values) : 0;
}

}  // namespace

void TensorNames::assign(std::vector<std::string> modules, std::vector<NamedTensor> tensors) {
  modules_ = std::move(modules);
  tensors_ = std::move(tensors);
  by_impl_.clear();
  storages_.clear();
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].tensor.has_storage()) storages_.insert(tensors_[i].tensor.storage().unsafeGetStorageImpl());
    if (tensors_[i].role == TensorRole::parameter) by_impl_.emplace(tensors_[i].tensor.unsafeGetTensorImpl(), i);
  }
}

void TensorNames::swap(TensorNames& other) noexcept {
  modules_.swap(other.modules_);
  tensors_.swap(other.tensors_);
  by_impl_.swap(other.by_impl_);
  storages_.swap(other.storages_);
}

Owner TensorNames::owner_of(std::uintptr_t storage) const {
  if (storage == 0) return {};
  for (const NamedTensor& named : tensors_) {
    if (storage_of(named.tensor) == storage) return {&named, named.role};
  }
  for (const NamedTensor& named : tensors_) {
    if (named.role == TensorRole::parameter && storage_of(named.tensor.grad()) == storage) {
      return {&named, TensorRole::gradient};
    }
  }
  return {};
}

}  // namespace firstfault::trace
