// Names of what the user asked to watch: modules, parameters, buffers.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <ATen/core/Tensor.h>

#include "firstfault/events/evidence.h"

namespace firstfault::trace {

struct NamedTensor {
  at::Tensor tensor;
  std::string name;  ///< full path, "model.fc.weight"
  TensorRole role = TensorRole::parameter;
  std::int32_t module = -1;  ///< index into modules
};

struct Owner {
  const NamedTensor* named = nullptr;
  TensorRole role = TensorRole::none;  ///< gradient: the storage is that of named->tensor's gradient
};

/// Holds the tensors while they are watched. Not thread-safe: the observer's mutex is held; tensors are put in and
/// taken out through swap(), so that none is dropped under it.
class TensorNames {
 public:
  void assign(std::vector<std::string> modules, std::vector<NamedTensor> tensors);
  void swap(TensorNames& other) noexcept;

  bool watching() const noexcept { return !tensors_.empty(); }
  const std::vector<NamedTensor>& tensors() const noexcept { return tensors_; }
  /// "" for -1. Names are only ever added, so that an index means the same for the whole trace.
  std::string module(std::int32_t index) const {
    return index < 0 || index >= std::ssize(modules_) ? std::string() : modules_[index];
  }

  /// Module of a parameter, by the address of its TensorImpl; -1: not a watched parameter. Cheap.
  std::int32_t module_of_parameter(const c10::TensorImpl* impl) const {
    const auto found = by_impl_.find(impl);
    return found == by_impl_.end() ? -1 : tensors_[found->second].module;
  }
  bool watches_storage(const c10::StorageImpl* storage) const { return storages_.count(storage); }
  /// Who owns a storage: parameter, buffer, or (searched through) a parameter's gradient; nobody for 0.
  Owner owner_of(std::uintptr_t storage) const;

 private:
  std::vector<std::string> modules_;
  std::vector<NamedTensor> tensors_;
  std::unordered_map<const c10::TensorImpl*, std::size_t> by_impl_;
  std::unordered_set<const c10::StorageImpl*> storages_;
};

}  // namespace firstfault::trace
