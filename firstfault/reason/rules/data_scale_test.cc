// The rule data_scale.
#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

Run with_input(Run run, double rms, double columns) {
  add_site(run, batch(SiteRole::input, "input 0"), [&](std::int64_t) {
    Health health = healthy(rms);
    health.columns = static_cast<float>(columns);
    return health;
  });
  return run;
}

TEST(DataScale, IsTheCauseOfADivergenceOnRawFeatures) {
  const auto answers = hypotheses(with_input(diverging(0, 7, 1000), 120, 1600));
  ASSERT_FALSE(answers.empty());
  EXPECT_EQ(answers.front().cause, "data_scale");
  EXPECT_EQ(answers.front().phase, "data");
}

TEST(DataScale, IsSilentWhereTheRunLearns) { EXPECT_TRUE(hypotheses(with_input(learning(60), 120, 1600)).empty()); }

TEST(DataScale, LeavesOrdinaryFeaturesToTheLearningRate) {
  EXPECT_EQ(hypotheses(with_input(diverging(0, 7, 1000), 1, 2)).front().cause, "lr_too_high");
}

}  // namespace
}  // namespace firstfault::reason
