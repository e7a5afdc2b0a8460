// The rule hyperparameter.
#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

TEST(Hyperparameter, SpeaksForANonfiniteLearningRate) {
  auto run = learning(5);
  add_fault(run, 0, "nonfinite_hyperparameter", "hyperparameter").phase = Phase::optimizer;
  EXPECT_EQ(ask("hyperparameter", run)->phase, "optimizer");
}

TEST(Hyperparameter, ReadsADivisionByANumberOfTheProgramThatIsZero) {
  auto run = learning(40);
  Operand temperature;
  temperature.name = "other";
  temperature.is_scalar_argument = true;
  temperature.value = 0;
  add_fault(run, 20, "division_by_zero", "op_domain").evidence.operands.push_back(temperature);
  EXPECT_TRUE(ask("hyperparameter", run));
  EXPECT_EQ(hypotheses(run).front().cause, "hyperparameter");
}

TEST(Hyperparameter, GoesBeforeTheOpThatComputedTheLearningRate) {
  const auto of = [](bool bad_loss, float lr) {
    auto run = learning(40);
    add_fault(run, 39, "division_by_zero", "op_domain");
    add_site(run, {SiteRole::optimizer, "", "group 0", "", "", {}, -1}, [&](std::int64_t step) {
      Health health;
      health.nonfinite = 0;
      health.lr = step == 39 ? lr : 0.01F;
      return health;
    });
    if (!bad_loss) run.rows.back().loss = 0.1, run.rows.back().loss_state = StepRow::Loss::finite;
    return hypotheses(run).front();
  };
  EXPECT_EQ(of(false, INFINITY).cause, "hyperparameter");
  EXPECT_EQ(of(false, INFINITY).op, "aten::log");
  EXPECT_EQ(of(false, 0.01F).cause, "op_domain");
  EXPECT_EQ(of(true, INFINITY).cause, "op_domain");
}

TEST(Hyperparameter, IsSilentAboutAScheduleThatEndsAtZero) {
  auto run = learning(40);
  run.rows.back().lr = 0;
  EXPECT_FALSE(ask("hyperparameter", run));
}

TEST(Hyperparameter, ALearningRateThatIsNotFiniteGoesBeforeTheTensorMadeOfIt) {
  auto run = learning(40);
  add_fault(run, 20, "bad_input", "data_nonfinite").evidence.role = TensorRole::outside;
  EXPECT_EQ(hypotheses(run).front().cause, "data_nonfinite");
  add_site(run, {SiteRole::optimizer, "", "group 0", "", "", {}, -1}, [](std::int64_t step) {
    Health health = healthy(1);
    health.nonfinite = step == 20 ? 1 : 0;
    return health;
  });
  EXPECT_EQ(hypotheses(run).front().cause, "hyperparameter");
}

TEST(Hyperparameter, NamesANumberOfTheProgramInTheArithmetic) {
  auto run = learning(40);
  Origin& origin = add_fault(run, 20, "bad_input", "data_nonfinite");
  origin.phase = Phase::data;
  origin.evidence.role = TensorRole::batch;
  origin.evidence.dtype = "float64";
  EXPECT_EQ(hypotheses(run).front().cause, "hyperparameter");
  origin.evidence.shape = {16};
  EXPECT_EQ(hypotheses(run).front().cause, "data_nonfinite");
}

}  // namespace
}  // namespace firstfault::reason
