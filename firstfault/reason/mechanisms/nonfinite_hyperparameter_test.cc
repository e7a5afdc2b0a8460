// A number in the call is NaN or Inf.
#include "firstfault/reason/mechanisms/hand_made.h"

#include <gtest/gtest.h>

namespace firstfault::reason::hand_made {
namespace {

constexpr auto kName = "nonfinite_hyperparameter";

TEST(NonfiniteHyperparameter, NamesTheArgument) {
  const auto verdict =
      ask(kName, forward("aten::add_", kNaN, {not_kept(tensor("self", 1)), tensor("other", 1), scalar("alpha", NAN)}));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->cause, "hyperparameter");
  EXPECT_EQ(verdict->because, "aten::add_ was called with 'alpha' = NaN; the tensor it worked on was finite");
}

TEST(NonfiniteHyperparameter, IsSilentOnFillsBoundsAndFiniteNumbers) {
  EXPECT_FALSE(ask(kName, forward("aten::masked_fill", kNaN, {tensor("self", 1), scalar("value", NAN)})));
  EXPECT_FALSE(ask(kName, forward("aten::clamp_", kNaN, {tensor("self", 1), scalar("max", INFINITY)})));
  EXPECT_FALSE(ask(kName, forward("aten::add", kNaN, {tensor("self", 1), scalar("alpha", 0.1)})));
}

}  // namespace
}  // namespace firstfault::reason::hand_made
