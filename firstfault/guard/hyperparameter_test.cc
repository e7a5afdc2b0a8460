#include "firstfault/guard/hyperparameter.h"

#include <cmath>

#include <gtest/gtest.h>

namespace firstfault::guard {
namespace {

TEST(Hyperparameter, OneThatIsNotFiniteBecomesWhatItWasOrASmallOne) {
  const Hyperparameter rate{"lr", std::nan("")};
  EXPECT_EQ(sound_value(rate, 0.25), 0.25);
  EXPECT_EQ(sound_value(rate, INFINITY), 1e-3);
  EXPECT_EQ(sound_value(rate, {}), 1e-3);
}

TEST(Hyperparameter, AnEpsThatIsZeroInItsDtypeBecomesOneThatCounts) {
  const Hyperparameter lost{"eps", 1e-8, 0, true}, held{"eps", 1e-8, 1e-8, true};
  EXPECT_TRUE(vanishes(lost));
  EXPECT_EQ(sound_value(lost, 1e-8), 1e-3);
  EXPECT_FALSE(vanishes(held));
  EXPECT_FALSE(sound_value(held, 1e-8));
}

TEST(Hyperparameter, AnEpsThatTheProgramSetToZeroIsItsOwnChoice) {
  const Hyperparameter chosen{"eps", 0, 0, true};
  EXPECT_FALSE(vanishes(chosen));
  EXPECT_EQ(sound_value(chosen, {}), 1e-3);  // once something else about the step is wrong
}

TEST(Hyperparameter, OthersThatAreZeroStay) { EXPECT_FALSE(sound_value({"weight_decay", 0}, 0.1)); }

}  // namespace
}  // namespace firstfault::guard
