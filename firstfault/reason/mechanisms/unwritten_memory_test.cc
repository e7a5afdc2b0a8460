// Memory read before anything wrote it.
#include "firstfault/reason/mechanisms/hand_made.h"

#include <gtest/gtest.h>

namespace firstfault::reason::hand_made {
namespace {

constexpr auto kName = "unwritten_memory";

TEST(UnwrittenMemory, SaysThatNoRecordedOpWroteIt) {
  auto evidence = forward("aten::add_", kNaN, {});
  evidence.role = TensorRole::unwritten;
  evidence.role_name = "crf.transitions";
  const auto verdict = ask(kName, evidence);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->cause, "bad_init");
  EXPECT_TRUE(
      contains(verdict->because, "aten::add_ read a tensor ('crf.transitions') that no recorded op had written"));
}

TEST(UnwrittenMemory, IsSilentOnOtherTensors) {
  auto evidence = forward("aten::add", kNaN, {});
  EXPECT_FALSE(ask(kName, evidence));
  evidence.role = TensorRole::outside;
  EXPECT_FALSE(ask(kName, evidence));
}

}  // namespace
}  // namespace firstfault::reason::hand_made
