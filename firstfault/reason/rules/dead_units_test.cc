// The rule dead_units.
#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

Run with_relu(Run run, std::int64_t since, double zeros) {
  add_site(run, activation("model.act1", "aten::relu", 1), [&](std::int64_t step) {
    Health health = healthy(step < since ? 1 : 0);
    health.zeros = static_cast<float>(step < since ? 0.6 : zeros);
    return health;
  });
  return run;
}

TEST(DeadUnits, NamesTheLayerAndSinceWhen) {
  auto run = with_relu(flat(60), 5, 1);
  run.rows[4].update_ratio = 2;
  const auto answers = hypotheses(run);
  ASSERT_FALSE(answers.empty());
  EXPECT_EQ(answers.front().cause, "dead_units");
  EXPECT_EQ(answers.front().module, "model.act1");
  EXPECT_EQ(answers.front().op, "ReluBackward0");
  EXPECT_EQ(answers.front().step, 5);
  EXPECT_NE(answers.front().description.find("2 of their own size"), std::string::npos);
}

TEST(DeadUnits, IsSilentAboutSparseLayers) { EXPECT_FALSE(ask("dead_units", with_relu(flat(60), 5, 0.97))); }

TEST(DeadUnits, IsSilentAboutAMarginLossThatHasReachedZero) {
  auto run = with_relu(learning(60), 40, 1);
  for (StepRow& row : run.rows) row.loss *= row.step < 40 ? 1 : 1e-3;
  EXPECT_FALSE(ask("dead_units", run));
}

TEST(DeadUnits, CountsChannelsThatStaySilentForAWholeWindow) {
  auto run = flat(60);
  add_site(run, activation("model.act1", "aten::relu", 1), [](std::int64_t step) {
    Health health = healthy(0.1);
    health.zeros = 0.98F;
    health.dead = step < 20 ? 0.3F : 0.95F;
    return health;
  });
  const auto answer = ask("dead_units", run);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->step, 20);
  EXPECT_LT(answer->confidence, 0.9);
}

}  // namespace
}  // namespace firstfault::reason
