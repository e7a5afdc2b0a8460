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

Run in_time(Run run, double lambda, double steps) {
  for (StepRow& row : run.rows) row.update_ratio = 0.02;
  Fact& fact = add_fact(run, FactKind::growth_in_time, 40,
                        {{"lambda", lambda}, {"lambda_first", lambda}, {"lambda_most", lambda}, {"steps", steps}});
  fact.numbers.insert({{"first", 1e-15}, {"last", 1e-3}, {"zeros", 0}, {"fit", 0.98}});
  fact.module = "model.rnn";
  fact.op = "aten::tanh";
  fact.detail = "model.rnn.weight_hh_l0";
  return run;
}

TEST(VanishingGradient, SaysByWhichFactorPerTimeStep) {
  const auto answers = hypotheses(in_time(flat(60), 0.62, 60));
  ASSERT_FALSE(answers.empty());
  const Hypothesis& first = answers.front();
  EXPECT_EQ(first.cause, "vanishing_gradient");
  EXPECT_EQ(first.module, "model.rnn");
  EXPECT_EQ(first.param, "model.rnn.weight_hh_l0");
  EXPECT_EQ(first.op, "TanhBackward0");
  EXPECT_NE(first.description.find("falls by a factor of 0.62 per time step"), std::string::npos) << first.description;
  EXPECT_NE(first.description.find("60 steps ago"), std::string::npos) << first.description;
}

TEST(VanishingGradient, InTimeIsSilentWhereItLearnsOrTheParametersDoNotMoveOrLittleFalls) {
  EXPECT_FALSE(ask("vanishing_gradient", in_time(learning(60), 0.62, 60)));
  EXPECT_FALSE(ask("vanishing_gradient", in_time(flat(20), 0.62, 60)));   // too short a run to say
  EXPECT_FALSE(ask("vanishing_gradient", in_time(flat(60), 0.62, 10)));   // 0.01 over all
  EXPECT_FALSE(ask("vanishing_gradient", in_time(flat(60), 0.95, 200)));  // slowly, as a gated unit does
  auto still = in_time(flat(60), 0.62, 60);
  for (StepRow& row : still.rows) row.update_ratio = 1e-3;
  EXPECT_FALSE(ask("vanishing_gradient", still));
  auto slow = in_time(flat(60), 0.62, 60);
  for (StepRow& row : slow.rows) row.loss *= 1 - 0.0015 * static_cast<double>(row.step);
  EXPECT_FALSE(ask("vanishing_gradient", slow));
  auto resumed = in_time(flat(60), 0.62, 60);
  add_site(resumed, {SiteRole::optimizer, "", "group 0"}, [](std::int64_t step) {
    Health health = healthy(0);
    health.state_steps = static_cast<float>(1001 + step);
    return health;
  });
  EXPECT_FALSE(ask("vanishing_gradient", resumed));
  auto later = in_time(flat(60), 0.62, 60);
  later.facts.front().numbers["lambda_first"] = 0.98;  // an effect of the training
  EXPECT_FALSE(ask("vanishing_gradient", later));
}

}  // namespace
}  // namespace firstfault::reason
