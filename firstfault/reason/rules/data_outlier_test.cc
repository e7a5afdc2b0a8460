// The rules data_outlier and label_outlier.
#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

Run with_batch(Run run, SiteRole role, std::int64_t bad, double times) {
  add_site(run, batch(role, role == SiteRole::input ? "input 0" : "target 0"),
           [&](std::int64_t step) { return healthy(wobble(step) * (step == bad ? times : 1)); });
  return run;
}

Run spiking(std::int64_t at) {
  auto run = learning(100);
  for (StepRow& row : run.rows) {
    if (row.step == at) row.gradient_norm *= 400;
    if (row.step >= at && row.step < at + 20) row.loss *= 40;
  }
  return run;
}

TEST(DataOutlier, NamesTheBatchOfASpike) {
  const auto answers = hypotheses(with_batch(spiking(60), SiteRole::input, 60, 10));
  ASSERT_FALSE(answers.empty());
  EXPECT_EQ(answers.front().cause, "data_outlier");
  EXPECT_EQ(answers.front().step, 60);
}

TEST(DataOutlier, IsSilentAboutALoudBatchThatDidNoHarm) {
  EXPECT_TRUE(hypotheses(with_batch(learning(100), SiteRole::input, 60, 10)).empty());
}

TEST(DataOutlier, TakesTheBlameForAProductThatOverflowed) {
  auto run = with_batch(learning(40), SiteRole::input, 11, 1e38);
  Origin& origin = add_fault(run, 11, "dtype_overflow", "overflow");
  origin.op = "aten::convolution";
  const auto answers = hypotheses(run);
  EXPECT_EQ(answers.front().cause, "data_outlier");
  EXPECT_EQ(answers.front().op, "aten::convolution");
}

TEST(DataOutlier, LeavesAFragileOpToItsMechanism) {
  auto run = with_batch(learning(40), SiteRole::input, 11, 200);
  add_fault(run, 11, "exp_overflow", "overflow").op = "aten::exp";
  EXPECT_EQ(hypotheses(run).front().cause, "overflow");
}

TEST(LabelOutlier, NamesTheTargetsOfASpike) {
  const auto answers = hypotheses(with_batch(spiking(60), SiteRole::target, 60, 30));
  ASSERT_FALSE(answers.empty());
  EXPECT_EQ(answers.front().cause, "label_outlier");
}

TEST(DataOutlier, WinsOverTheLearningRateWhereADivergenceBeginsWithItOrJustAfterIt) {
  for (const auto role : {SiteRole::input, SiteRole::target}) {
    for (const double times : {12, 100}) {
      for (const std::int64_t bad : {28, 29, 30}) {
        const auto answers = hypotheses(with_batch(diverging(30, 8, 30), role, bad, times));
        ASSERT_FALSE(answers.empty());
        EXPECT_EQ(answers.front().cause, role == SiteRole::input ? "data_outlier" : "label_outlier") << bad << times;
        EXPECT_EQ(answers.front().onset_step, bad);
      }
    }
  }
}

TEST(DataOutlier, LeavesADivergenceLongAfterItToTheLearningRate) {
  EXPECT_EQ(hypotheses(with_batch(diverging(30, 8, 30), SiteRole::input, 20, 100)).front().cause, "lr_too_high");
}

TEST(DataOutlier, IsSilentWhereTheProgramLeftTheBatchOut) {
  auto run = with_batch(learning(100), SiteRole::input, 60, 10);
  run.rows[60].loss *= 400;
  run.rows[60].backwards = 2;
  EXPECT_TRUE(hypotheses(run).empty());
}

TEST(DataOutlier, NeedsNoHarmForValuesThatNoSampleHas) {
  EXPECT_EQ(hypotheses(with_batch(learning(100), SiteRole::input, 60, 1e5)).front().cause, "data_outlier");
}

}  // namespace
}  // namespace firstfault::reason
