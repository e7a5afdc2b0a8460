// The rule weight_decay_sign.
#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

Run with_decay(Run run, double decay) {
  run.setup.optimizers.push_back({"SGD", {{{"lr", 0.1}, {"weight_decay", decay}}}});
  return run;
}

TEST(WeightDecaySign, IsTheCauseOfADivergence) {
  EXPECT_EQ(hypotheses(with_decay(diverging(30, 8, 30), -0.1)).front().cause, "weight_decay_sign");
}

TEST(WeightDecaySign, IsSilentAboutAnOrdinaryDecay) {
  EXPECT_TRUE(hypotheses(with_decay(learning(40), 0.1)).empty());
  EXPECT_TRUE(hypotheses(with_decay(learning(40), 0)).empty());
}

}  // namespace
}  // namespace firstfault::reason
