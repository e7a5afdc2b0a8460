// The rule masked_softmax.
#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

TEST(MaskedSoftmax, SpeaksForItsMechanism) {
  auto run = learning(40);
  add_fault(run, 7, "fully_masked_row", "masked_softmax");
  EXPECT_EQ(ask("masked_softmax", run)->step, 7);
}

TEST(MaskedSoftmax, IsTheCauseEvenWhileTheRunDiverges) {
  auto run = diverging(30, 8, 30);
  add_fault(run, 38, "fully_masked_row", "masked_softmax");
  EXPECT_TRUE(ask("masked_softmax", run));
}

TEST(MaskedSoftmax, IsSilentOnAHealthyRun) { EXPECT_FALSE(ask("masked_softmax", learning(40))); }

}  // namespace
}  // namespace firstfault::reason
