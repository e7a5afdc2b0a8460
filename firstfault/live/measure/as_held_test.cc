#include "firstfault/live/measure/as_held.h"

#include <gtest/gtest.h>

namespace firstfault::measure {
namespace {

TEST(EpsAsHeld, VanishesBelowTheSmallestNumberOfTheDtype) {
  EXPECT_EQ(eps_as_held(1e-8, c10::kHalf), 0);
  EXPECT_EQ(eps_as_held(1e-46, c10::kFloat), 0);
  EXPECT_EQ(eps_as_held(1e-46, c10::kDouble), 1e-46);
  EXPECT_EQ(eps_as_held(1e-46, c10::ScalarType::ComplexFloat), 0);
}

TEST(EpsAsHeld, IsRoundedWhereTheDtypeHasIt) {
  EXPECT_NEAR(eps_as_held(1e-4, c10::kHalf), 1e-4, 1e-7);
  EXPECT_NE(eps_as_held(1e-8, c10::kBFloat16), 1e-8);
  EXPECT_NEAR(eps_as_held(1e-8, c10::kBFloat16), 1e-8, 1e-10);
}

TEST(EpsAsHeld, OfAFusedKernelItIsAFloat) { EXPECT_EQ(eps_as_held(1e-8, c10::kHalf, true), 1e-8F); }

}  // namespace
}  // namespace firstfault::measure
