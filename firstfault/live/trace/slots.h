// One slot per storage that an op wrote: is it finite, and if not, which node of the graph says why.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "firstfault/events/counts.h"
#include "firstfault/live/trace/batch.h"
#include "firstfault/live/trace/bounds.h"
#include "firstfault/live/trace/storage_pin.h"

namespace firstfault::trace {

/// Slot state beyond the NonFinite bits.
/// kPartial: only a part of the storage was looked at.
enum SlotBits : std::uint8_t { kIntended = 8, kUnwritten = 16, kPartial = 32 };

struct Slot {
  c10::StorageImpl* storage = nullptr;
  /// Set only while the state is bad: a weak reference per finite storage would fragment the heap.
  StoragePin pin;
  std::uint64_t written = 0;  ///< number of the record that wrote it, 0: not seen
  std::uint64_t touched = 0;  ///< number of the record that last had to do with it
  BatchLayout batch;
  std::int32_t node = -1;
  std::uint8_t state = 0;
  std::uint16_t memory = 0;  ///< of the storage when it was written, mixed: tells an address that was given out anew

  bool is_of(const at::Tensor& tensor) const { return memory == memory_tag(tensor); }
  static std::uint16_t memory_tag(const at::Tensor& tensor) {
    const auto at = reinterpret_cast<std::uintptr_t>(tensor.storage().data()) ^ tensor.storage().nbytes() << 20;
    return static_cast<std::uint16_t>(at * 0x9E3779B97F4A7C15ull >> 48);
  }
};
static_assert(sizeof(Slot) == 64, "one cache line: the table is read at random, several times an op");

/// How large the values of a storage can be, as of the record `at`; 0: not known. Not part of a slot, which is full.
struct KnownBounds {
  std::uint64_t at = 0;
  Bounds bounds;
};

/// Open addressing by StorageImpl address. Finite slots are dropped by age, bad ones when their storage has died.
/// Not thread-safe: the observer's mutex is held.
class SlotTable {
 public:
  SlotTable();

  /// nullptr: not known. A bad slot whose storage died is reset before it is returned, as the address lives anew.
  Slot* find(const c10::StorageImpl* storage);
  Slot* find(const at::Tensor& tensor) { return find(tensor.storage().unsafeGetStorageImpl()); }
  /// Finds or makes. Invalidates every Slot* got before.
  Slot& insert(const at::Tensor& tensor, std::uint64_t now);
  /// Of a slot that was just found or inserted; old where the storage was written after it.
  KnownBounds& bounds(const Slot& slot) { return bounds_[static_cast<std::size_t>(&slot - slots_.data())]; }
  void pin(Slot& slot, const at::Tensor& tensor);
  static void unpin(Slot& slot);

  /// Finite ones have to be looked at again.
  void forget_finite();

  std::size_t size() const noexcept { return used_; }

  template <class Visit>
  void for_each_living_bad(Visit&& visit) {
    for (Slot& slot : slots_) {
      if (slot.storage && (slot.state & kAnyBad) && !slot.pin.expired()) visit(slot);
    }
  }

 private:
  void sweep(std::uint64_t now);

  std::vector<Slot> slots_;
  std::vector<KnownBounds> bounds_;  ///< by slot
  std::size_t used_ = 0;
};

}  // namespace firstfault::trace
