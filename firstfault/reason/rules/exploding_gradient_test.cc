// The rule exploding_gradient.
#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

Run deep(Run run, double factor) {
  for (int i = 0; i < 6; ++i)
    add_site(run, weight("model.layers." + std::to_string(i), {32, 32}, i, SiteRole::gradient),
             [&](std::int64_t) { return healthy(0.01 * std::pow(factor, 5 - i)); });
  return run;
}

TEST(ExplodingGradient, IsTheCauseWhereTheBackwardOverflowsInACalmRun) {
  auto run = deep(learning(40), 8);
  add_fault(run, 20, "dtype_overflow", "overflow").phase = Phase::backward;
  EXPECT_EQ(hypotheses(run).front().cause, "exploding_gradient");
}

TEST(ExplodingGradient, SaysByWhichFactorPerLayerTheGradientGrows) {
  const auto run = deep(diverging(30, 8, 30), 8);
  const auto answers = hypotheses(run);
  EXPECT_EQ(answers.front().cause, "exploding_gradient");
  EXPECT_NE(answers.front().description.find("factor of 8 per layer"), std::string::npos);
}

TEST(ExplodingGradient, IsSilentWhereTheGradientsAreEven) {
  EXPECT_FALSE(ask("exploding_gradient", deep(diverging(30, 8, 30), 1.1)));
  EXPECT_FALSE(ask("exploding_gradient", deep(learning(40), 8)));
}

Run in_time(Run run, double lambda) {
  Fact& fact = add_fact(run, FactKind::growth_in_time, 40,
                        {{"lambda", lambda}, {"lambda_first", lambda}, {"lambda_most", lambda}, {"steps", 30}});
  fact.module = "model.rnn";
  fact.op = "aten::tanh";
  fact.detail = "model.rnn.weight_hh_l0";
  return run;
}

TEST(ExplodingGradient, SaysByWhichFactorPerTimeStepTheGradientGrows) {
  const auto answer = ask("exploding_gradient", in_time(diverging(30, 8, 30), 1.5));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->module, "model.rnn");
  EXPECT_EQ(answer->param, "model.rnn.weight_hh_l0");
  EXPECT_NE(answer->description.find("grows by a factor of 1.5 per time step"), std::string::npos)
      << answer->description;
}

TEST(ExplodingGradient, InTimeIsSilentWithoutHarmAndWhereTheGradientIsEven) {
  EXPECT_FALSE(ask("exploding_gradient", in_time(learning(40), 1.5)));
  EXPECT_FALSE(ask("exploding_gradient", in_time(diverging(30, 8, 30), 1.02)));
}

}  // namespace
}  // namespace firstfault::reason
