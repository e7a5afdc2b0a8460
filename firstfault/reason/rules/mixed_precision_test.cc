// The rule mixed_precision.
#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

TEST(MixedPrecision, SpeaksForAnOverflowThatFloat32WouldHold) {
  auto run = learning(40);
  add_fault(run, 3, "dtype_overflow", "mixed_precision").evidence.dtype = "float16";
  EXPECT_GE(ask("mixed_precision", run)->confidence, 0.9);
}

TEST(MixedPrecision, IsSilentAboutAGradScalersSkippedSteps) {
  auto run = learning(40);
  Origin& origin = add_fault(run, 0, "dtype_overflow", "mixed_precision");
  origin.phase = Phase::backward;
  for (StepRow& row : run.rows) {
    row.loss = 1 / (1.0 + static_cast<double>(row.step));
    row.loss_state = StepRow::Loss::finite;
    row.loss_scale = 65536;
  }
  run.rows.front().skipped = true;
  EXPECT_TRUE(hypotheses(run).empty());
}

TEST(MixedPrecision, ReadsGradientsThatRoundToZero) {
  auto run = flat(40);
  add_fact(run, FactKind::underflow, 40, {{"zeros", 0.97}, {"scale", NAN}});
  EXPECT_EQ(hypotheses(run).front().cause, "mixed_precision");
}

TEST(MixedPrecision, LeavesSomeExactZerosAlone) {
  auto run = learning(40);
  add_fact(run, FactKind::underflow, 40, {{"zeros", 0.97}, {"scale", NAN}});
  EXPECT_FALSE(ask("mixed_precision", run));
}

TEST(MixedPrecision, ReportsAFloat16OverflowThatWasSwallowed) {
  auto run = learning(10);
  Origin& origin = add_fault(run, 4, "dtype_overflow", "mixed_precision");
  origin.outcome = Outcome::swallowed;
  origin.sink = "";
  for (StepRow& row : run.rows) {
    row.loss = 1;
    row.loss_state = StepRow::Loss::finite;
  }
  EXPECT_EQ(ask("mixed_precision", run)->step, 4);
}

TEST(MixedPrecision, IsSilentWhereAFusedOptimizerPassedAnOverflowOver) {
  auto run = learning(40);
  for (StepRow& row : run.rows) row.loss_scale = 65536;
  run.rows.front().gradient_norm = INFINITY;
  run.rows.front().update_ratio = 0;
  add_site(run, weight("model.fc", {8, 8}, 0, SiteRole::gradient), [](std::int64_t step) {
    Health health = healthy(0.1);
    health.nonfinite = step == 0 ? 5 : 0;
    return health;
  });
  EXPECT_TRUE(hypotheses(run).empty());
}

}  // namespace
}  // namespace firstfault::reason
