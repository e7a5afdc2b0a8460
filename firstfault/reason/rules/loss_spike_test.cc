// The rule loss_spike.
#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

Run spiking(double times, std::int64_t lasting) {
  auto run = learning(100);
  for (StepRow& row : run.rows)
    if (row.step >= 60 && row.step < 60 + lasting) row.loss *= times;
  return run;
}

TEST(LossSpike, IsANoteAboutAStepThatThrewTheRunBack) {
  const auto answer = ask("loss_spike", spiking(40, 20));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->step, 60);
  EXPECT_LT(answer->confidence, 0.5);
}

TEST(LossSpike, IsSilentAboutASpikeThatIsOverAtOnce) { EXPECT_FALSE(ask("loss_spike", spiking(40, 1))); }

}  // namespace
}  // namespace firstfault::reason
