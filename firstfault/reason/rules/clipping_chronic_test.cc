// The rule clipping_chronic.
#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

Run clipped(Run run, double coefficient) {
  add_fact(run, FactKind::clipped, run.steps, {{"norm", 1 / coefficient}, {"coefficient", coefficient}});
  return run;
}

TEST(ClippingChronic, IsANoteWhereNothingIsLearnt) {
  const auto answer = ask("clipping_chronic", clipped(flat(200), 1e-3));
  ASSERT_TRUE(answer);
  EXPECT_LT(answer->confidence, 0.5);
}

TEST(ClippingChronic, IsSilentAboutLightClippingAndWhereTheRunLearns) {
  EXPECT_FALSE(ask("clipping_chronic", clipped(flat(200), 0.3)));
  EXPECT_FALSE(ask("clipping_chronic", clipped(learning(200), 1e-3)));
}

}  // namespace
}  // namespace firstfault::reason
