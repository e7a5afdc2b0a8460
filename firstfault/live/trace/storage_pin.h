// The identity of a storage, for as long as it lives.
#pragma once

#include <cstdint>

#include <c10/core/Storage.h>

namespace firstfault::trace {

/// A weak reference: the memory may be freed, but no other storage gets this one's address while the pin is held.
class StoragePin {
 public:
  StoragePin() : storage_(c10::intrusive_ptr<c10::StorageImpl>()) {}
  explicit StoragePin(const c10::Storage& storage) : storage_(storage.getWeakStorageImpl()) {}

  bool expired() const noexcept { return storage_.expired(); }
  /// 0 once it was freed.
  std::uintptr_t living() const noexcept {
    return expired() ? 0 : reinterpret_cast<std::uintptr_t>(storage_._unsafe_get_target());
  }

 private:
  c10::weak_intrusive_ptr<c10::StorageImpl> storage_;
};

}  // namespace firstfault::trace
