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
