// Inf / Inf.
#include "firstfault/reason/mechanisms/hand_made.h"

#include <gtest/gtest.h>

namespace firstfault::reason::hand_made {
namespace {

constexpr auto kName = "inf_over_inf";

TEST(InfOverInf, NamesBothOperands) {
  const auto verdict = ask(kName, forward("aten::div_", kNaN, {tensor("self", INFINITY), tensor("other", INFINITY)}));
  ASSERT_TRUE(verdict);
  EXPECT_TRUE(contains(verdict->because, "Inf / Inf is NaN"));
}

TEST(InfOverInf, IsSilentOnOtherDivisions) {
  EXPECT_FALSE(ask(kName, forward("aten::div", kNaN, {tensor("self", 0), tensor("other", 0)})));
}

}  // namespace
}  // namespace firstfault::reason::hand_made
