// The rule vanishing_gradient.
#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

Run deep(Run run, int layers, double factor) {
  for (int i = 0; i < layers; ++i) {
    const std::string module = "model.layers." + std::to_string(i);
    add_site(run, weight(module, {32, 32}, 2 * i, SiteRole::gradient),
             [&](std::int64_t) { return healthy(0.01 * std::pow(factor, layers - 1 - i)); });
    add_site(run, activation("model.acts." + std::to_string(i), "aten::sigmoid", 2 * i + 1),
             [](std::int64_t) { return healthy(0.5); });
  }
  return run;
}

TEST(VanishingGradient, SaysByWhichFactorPerLayer) {
  const auto answers = hypotheses(deep(flat(60), 10, 0.25));
  ASSERT_FALSE(answers.empty());
  const Hypothesis& first = answers.front();
  EXPECT_EQ(first.cause, "vanishing_gradient");
  EXPECT_EQ(first.op, "SigmoidBackward0");
  EXPECT_EQ(first.param, "model.layers.0.weight");
  EXPECT_EQ(first.step, 0);
  EXPECT_NE(first.description.find("factor of 0.25 per layer"), std::string::npos) << first.description;
}

TEST(VanishingGradient, IsSilentWhereTheNetworkLearns) {
  EXPECT_FALSE(ask("vanishing_gradient", deep(learning(60), 10, 0.25)));
}

TEST(VanishingGradient, IsAnEffectWhereLargeStepsCameFirst) {
  auto run = deep(flat(60), 10, 0.25);
  for (StepRow& row : run.rows)
    for (std::size_t i = 0; i < run.sites.size(); ++i)
      if (row.step < 20 && run.sites[i].role == SiteRole::gradient) row.sites[i].rms = 0.01F;
  EXPECT_TRUE(ask("vanishing_gradient", run));
  run.rows[1].update_ratio = 0.2;
  EXPECT_FALSE(ask("vanishing_gradient", run));
}

TEST(VanishingGradient, IsSilentAboutAFewLayersAndAboutEvenGradients) {
  EXPECT_FALSE(ask("vanishing_gradient", deep(flat(60), 3, 0.01)));
  EXPECT_FALSE(ask("vanishing_gradient", deep(flat(60), 12, 0.95)));
}

}  // namespace
}  // namespace firstfault::reason
