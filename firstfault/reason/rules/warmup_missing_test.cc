// The rule warmup_missing.
#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

Run transformer(double varies_later, double first_lr) {
  auto run = flat(160);
  run.setup.optimizers.push_back({"Adam", {{{"lr", 6e-3}}}});
  run.setup.modules.push_back({"model.norm", "LayerNorm", 64});
  for (StepRow& row : run.rows) {
    row.update_ratio = row.step < 10 ? 0.03 : 1e-3;
    row.lr = row.step < 5 ? first_lr : 6e-3;
  }
  add_site(run, activation("model", "", -1), [&](std::int64_t step) {
    Health health = healthy(0.3);
    health.varies = static_cast<float>(step < 13 ? 0.3 : varies_later);
    return health;
  });
  return run;
}

TEST(WarmupMissing, SeesAnOutputThatComesToIgnoreItsInput) {
  const auto answers = hypotheses(transformer(3e-5, 6e-3));
  ASSERT_FALSE(answers.empty());
  EXPECT_EQ(answers.front().cause, "warmup_missing");
  EXPECT_EQ(answers.front().step, 13);
}

TEST(WarmupMissing, IsSilentWhereTheOutputStillVariesOrTheRateWasWarmedUp) {
  EXPECT_FALSE(ask("warmup_missing", transformer(0.3, 6e-3)));
  EXPECT_FALSE(ask("warmup_missing", transformer(3e-5, 6e-5)));
}

}  // namespace
}  // namespace firstfault::reason
