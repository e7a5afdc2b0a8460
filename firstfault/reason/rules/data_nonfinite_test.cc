// The rule data_nonfinite.
#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

TEST(DataNonfinite, NamesTheTensorThatHeldTheValue) {
  auto run = learning(40);
  Origin& origin = add_fault(run, 9, "bad_input", "data_nonfinite");
  origin.phase = Phase::data;
  origin.op = "";
  origin.sample = 4;
  const auto answer = ask("data_nonfinite", run);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->phase, "data");
  EXPECT_EQ(answer->sample, 4);
}

TEST(DataNonfinite, ReadsTheBatchWhereNoOpWasSeen) {
  auto run = learning(40);
  for (StepRow& row : run.rows)
    if (row.step >= 12) row.loss_state = StepRow::Loss::nan;
  add_site(run, batch(SiteRole::input, "input 0"), [](std::int64_t step) {
    Health health = healthy(1);
    health.nonfinite = step == 12 ? 3 : 0;
    return health;
  });
  const auto answer = ask("data_nonfinite", run);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->step, 12);
}

TEST(DataNonfinite, IsSilentAboutMissingValuesThatAreMasked) {
  auto run = learning(40);
  add_site(run, batch(SiteRole::target, "target 0"), [](std::int64_t) {
    Health health = healthy(1);
    health.nonfinite = 5;
    return health;
  });
  EXPECT_TRUE(hypotheses(run).empty());
}

}  // namespace
}  // namespace firstfault::reason
