// The rule plateau.
#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

Run stalled(double late_gradient) {
  auto run = learning(400);
  for (StepRow& row : run.rows) {
    if (row.step < 150) continue;
    row.update_ratio = 1e-8;
    row.gradient_norm = late_gradient;
  }
  return run;
}

TEST(Plateau, SpeaksWhereStepsDieAndGradientsDoNot) { EXPECT_TRUE(ask("plateau", stalled(0.5))); }

TEST(Plateau, IsSilentAboutARunThatHasConverged) { EXPECT_FALSE(ask("plateau", stalled(1e-4))); }

}  // namespace
}  // namespace firstfault::reason
