// The rule saturation.
#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

Run with_tanh(Run run, double from, double to) {
  for (int i = 0; i < 2; ++i)
    add_site(run, activation("model.act" + std::to_string(i), "aten::tanh", i), [&, i](std::int64_t step) {
      Health health = healthy(0.9);
      health.saturated = static_cast<float>(step < 10 + 5 * i ? from : to);
      return health;
    });
  return run;
}

TEST(Saturation, NamesTheFirstLayerAndSinceWhen) {
  const auto answers = hypotheses(with_tanh(flat(60), 0.1, 0.9));
  ASSERT_FALSE(answers.empty());
  EXPECT_EQ(answers.front().cause, "saturation");
  EXPECT_EQ(answers.front().module, "model.act0");
  EXPECT_EQ(answers.front().step, 10);
}

TEST(Saturation, IsSilentWhereTheRunLearnsAndBelowHalf) {
  EXPECT_FALSE(ask("saturation", with_tanh(learning(60), 0.1, 0.9)));
  EXPECT_FALSE(ask("saturation", with_tanh(flat(60), 0.1, 0.45)));
}

TEST(Saturation, IsAnEffectOfLargeInputs) {
  Run run = with_tanh(flat(60), 0.9, 0.9);
  add_site(run, batch(SiteRole::input, "input 0"), [](std::int64_t) { return healthy(5000); });
  EXPECT_EQ(hypotheses(run).front().cause, "data_scale");
}

}  // namespace
}  // namespace firstfault::reason
