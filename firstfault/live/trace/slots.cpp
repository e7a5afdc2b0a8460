// The table of storages.
#include "firstfault/live/trace/slots.h"

namespace firstfault::trace {
namespace {

constexpr std::size_t kSmallest = 1 << 12;  // 256 KiB: stays in the second-level cache
constexpr std::uint64_t kMaxAge = 8192;     // records; a finite slot only saves a scan of an in-place operand

std::size_t start_of(const c10::StorageImpl* storage, std::size_t mask) {
  return ((reinterpret_cast<std::uintptr_t>(storage) >> 4) * 0x9E3779B97F4A7C15ull >> 32) & mask;
}

Slot& place_in(std::vector<Slot>& slots, const c10::StorageImpl* storage) {
  const std::size_t mask = slots.size() - 1;
  for (std::size_t at = start_of(storage, mask);; at = (at + 1) & mask) {
    if (slots[at].storage == storage || !slots[at].storage) return slots[at];
  }
}

}  // namespace

SlotTable::SlotTable() : slots_(kSmallest), bounds_(kSmallest) {}

Slot* SlotTable::find(const c10::StorageImpl* storage) {
  Slot& slot = place_in(slots_, storage);
  if (!slot.storage) return nullptr;
  if ((slot.state & kAnyBad) && slot.pin.expired()) {
    slot.state = 0;
    slot.node = -1;
    slot.written = 0;
    slot.batch = {};
    bounds(slot) = {};
  }
  return &slot;
}

Slot& SlotTable::insert(const at::Tensor& tensor, std::uint64_t now) {
  auto* storage = tensor.storage().unsafeGetStorageImpl();
  if (Slot* known = find(storage)) {
    known->touched = now;
    known->memory = Slot::memory_tag(tensor);
    return *known;
  }
  if (used_ * 2 > slots_.size()) sweep(now);
  Slot& slot = place_in(slots_, storage);
  slot.storage = storage;
  bounds(slot) = {};
  slot.touched = now;
  slot.memory = Slot::memory_tag(tensor);
  ++used_;
  return slot;
}

void SlotTable::pin(Slot& slot, const at::Tensor& tensor) {
  if (slot.pin.expired()) slot.pin = StoragePin(tensor.storage());
}

void SlotTable::unpin(Slot& slot) { slot.pin = {}; }

void SlotTable::forget_finite() {
  for (Slot& slot : slots_) {
    if (!slot.storage || (slot.state & (static_cast<unsigned>(kAnyBad) | static_cast<unsigned>(kUnwritten)))) continue;
    slot.state = kPartial;
    slot.written = 0;
    bounds(slot) = {};
  }
}

void SlotTable::sweep(std::uint64_t now) {
  const auto lives = [now](const Slot& slot) {
    if (!slot.storage) return false;
    return (slot.state & kAnyBad) ? !slot.pin.expired() : slot.touched + kMaxAge > now;
  };
  std::size_t alive = 0;
  for (const Slot& slot : slots_) alive += lives(slot);
  std::size_t size = kSmallest;
  while (size < alive * 4) size *= 2;
  std::vector<Slot> kept(size);
  std::vector<KnownBounds> kept_bounds(size);
  for (Slot& slot : slots_) {
    if (!lives(slot)) continue;
    Slot& place = place_in(kept, slot.storage);
    kept_bounds[static_cast<std::size_t>(&place - kept.data())] = bounds(slot);
    place = std::move(slot);
  }
  slots_.swap(kept);
  bounds_.swap(kept_bounds);
  used_ = alive;
}

}  // namespace firstfault::trace
