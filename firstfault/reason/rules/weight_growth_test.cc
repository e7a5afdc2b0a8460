// The rule weight_growth.
#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

Run growing(double gradient) {
  auto run = flat(60);
  for (StepRow& row : run.rows) {
    row.parameter_norm = 10 * std::pow(1.03, static_cast<double>(row.step));
    row.update_ratio = 0.03;
    row.gradient_norm = gradient;
  }
  return run;
}

TEST(WeightGrowth, SaysByHowMuchTheParametersFeedThemselves) {
  const auto answers = hypotheses(growing(0.1));
  ASSERT_FALSE(answers.empty());
  EXPECT_EQ(answers.front().cause, "weight_growth");
  EXPECT_NE(answers.front().description.find("by 3 % in each step"), std::string::npos) << answers.front().description;
}

TEST(WeightGrowth, IsSilentWhereTheGradientAsksForIt) { EXPECT_FALSE(ask("weight_growth", growing(100))); }

}  // namespace
}  // namespace firstfault::reason
