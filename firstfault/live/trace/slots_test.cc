#include "firstfault/live/trace/slots.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

namespace firstfault::trace {
namespace {

TEST(Slots, ABadSlotIsResetWhenItsStorageHasDied) {
  SlotTable table;
  const c10::StorageImpl* address = nullptr;
  {
    const at::Tensor bad = at::zeros({4});
    address = bad.storage().unsafeGetStorageImpl();
    Slot& slot = table.insert(bad, 1);
    slot.state = kNaN;
    slot.node = 7;
    table.pin(slot, bad);
    EXPECT_EQ(table.find(bad)->node, 7);
  }
  const Slot* slot = table.find(address);
  ASSERT_NE(slot, nullptr);
  EXPECT_EQ(slot->node, -1);
  EXPECT_EQ(slot->state, 0);
}

TEST(Slots, APinnedStorageIsNotKeptAlive) {
  SlotTable table;
  at::Tensor bad = at::zeros({4});
  Slot& slot = table.insert(bad, 1);
  slot.state = kNaN;
  table.pin(slot, bad);
  EXPECT_EQ(bad.storage().use_count(), 1u);
}

TEST(Slots, FiniteSlotsAreDroppedByAgeSoThatTheTableStaysSmall) {
  SlotTable table;
  std::vector<at::Tensor> alive;
  for (std::uint64_t now = 1; now < 200000; ++now) {
    if (now % 1000 == 0) alive.clear();
    alive.push_back(at::zeros({1}));
    table.insert(alive.back(), now);
  }
  EXPECT_LT(table.size(), 20000u);
}

TEST(Slots, BadSlotsOutliveTheAgeOfFiniteOnes) {
  SlotTable table;
  const at::Tensor bad = at::zeros({4});
  Slot& slot = table.insert(bad, 1);
  slot.state = kPosInf;
  slot.node = 3;
  table.pin(slot, bad);
  std::vector<at::Tensor> others;
  for (std::uint64_t now = 2; now < 40000; ++now) {
    others.push_back(at::zeros({1}));
    table.insert(others.back(), now);
  }
  ASSERT_NE(table.find(bad), nullptr);
  EXPECT_EQ(table.find(bad)->node, 3);
}

}  // namespace
}  // namespace firstfault::trace
