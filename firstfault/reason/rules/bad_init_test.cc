// The rule bad_init.
#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

Run with_head(Run run, double rms) {
  add_site(run, weight("model.head", {64, 256}, 3, SiteRole::parameter), [&](std::int64_t) {
    Health health = healthy(rms);
    health.update = 1e-3F;
    return health;
  });
  run.setup.modules.push_back({"model.head", "Linear", 64 * 256});
  return run;
}

Run classifier(double first_loss, double scores) {
  auto run = learning(20);
  for (StepRow& row : run.rows) row.loss *= first_loss / run.rows.front().loss;
  add_site(run, activation("model", "", -1), [&](std::int64_t) { return healthy(scores); });
  add_fact(run, FactKind::loss_op, 20, {{"classes", 64}, {"elements", 32}}).op = "aten::cross_entropy_loss";
  return run;
}

TEST(BadInit, NamesTheWeightBehindAHugeFirstLoss) {
  const auto answers = hypotheses(with_head(classifier(37, 16), 1));
  ASSERT_FALSE(answers.empty());
  EXPECT_EQ(answers.front().cause, "bad_init");
  EXPECT_EQ(answers.front().module, "model.head");
  EXPECT_EQ(answers.front().step, 0);
}

TEST(BadInit, IsSilentAboutAnOrdinaryFirstLossAndASumOverTheBatch) {
  EXPECT_TRUE(hypotheses(with_head(classifier(4.6, 0.6), 0.06)).empty());
  EXPECT_TRUE(hypotheses(with_head(classifier(4.6 * 32, 1), 0.06)).empty());
}

TEST(BadInit, ExplainsAnOverflowInTheFirstStep) {
  auto run = with_head(learning(5), 30);
  add_fault(run, 0, "dtype_overflow", "overflow");
  EXPECT_EQ(hypotheses(run).front().cause, "bad_init");
}

TEST(BadInit, SpeaksForMemoryThatNobodyWrote) {
  auto run = learning(5);
  add_fault(run, 0, "unwritten_memory", "bad_init");
  EXPECT_TRUE(ask("bad_init", run));
}

TEST(BadInit, SeesTwoWeightsInARowThatStayZero) {
  auto run = flat(30);
  for (const int i : {0, 1})
    add_site(run, weight("model.fc" + std::to_string(i), {8, 8}, i, SiteRole::parameter),
             [](std::int64_t) { return healthy(0); });
  EXPECT_EQ(ask("bad_init", run)->param, "model.fc1.weight");
}

TEST(BadInit, SeesASignalThatGrowsBeforeAnythingIsLearnt) {
  auto run = with_head(learning(30), 1);
  add_site(run, activation("model", "", -1), [](std::int64_t) { return healthy(400); });
  EXPECT_EQ(hypotheses(run).front().cause, "bad_init");
}

TEST(BadInit, SeesARecurrentWeightThatMultipliesTheSignalInEveryTimeStep) {
  auto run = diverging(0, 5, 1000);
  Site site = weight("model.rnn", {64, 64}, 0, SiteRole::parameter);
  site.name = "model.rnn.weight_hh_l0";
  add_site(run, site, [](std::int64_t) {
    Health health = healthy(1.6 / 8);
    health.update = 1e-3F;
    return health;
  });
  const auto output = add_site(run, activation("model", "", -1), [](std::int64_t) { return healthy(1e7); });
  const auto answer = ask("bad_init", run);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->param, "model.rnn.weight_hh_l0");
  add_fact(run, FactKind::growth_in_time, 5, {{"lambda_most", 1.6}, {"steps", 40}}).module = "model.rnn";
  EXPECT_NE(ask("bad_init", run)->evidence.back().text.find("grows by a factor of 1.6 per time step"),
            std::string::npos);
  for (StepRow& row : run.rows) row.sites[static_cast<std::size_t>(output)].rms = 30;
  EXPECT_FALSE(ask("bad_init", run));
}

TEST(BadInit, LooksThroughAHugeFirstStep) {
  auto run = with_head(diverging(0, 5, 1000), 0.03);
  for (StepRow& row : run.rows) {
    row.sites.back().update = 1e6F;
    row.sites.back().rms = 3e4F;
  }
  EXPECT_FALSE(ask("bad_init", run));
}

}  // namespace
}  // namespace firstfault::reason
