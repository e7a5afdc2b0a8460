// The backward of a decomposition with equal values.
#include "firstfault/reason/mechanisms/hand_made.h"

#include <gtest/gtest.h>

namespace firstfault::reason::hand_made {
namespace {

constexpr auto kName = "degenerate_decomposition";

OriginEvidence svd(double difference, const char* node = "LinalgSvdBackward0") {
  return of_forward(backward(node, "aten::div", kNaN, {tensor("self", 0), tensor("other", difference)}),
                    "aten::_linalg_svd");
}

TEST(DegenerateDecomposition, EqualSingularValues) {
  const auto verdict = ask(kName, svd(0));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->cause, "op_domain");
  EXPECT_TRUE(contains(verdict->because, "LinalgSvdBackward0 divides by 0"));
  EXPECT_TRUE(contains(verdict->because, "two are equal"));
  EXPECT_EQ(winner(svd(0)), kName);
}

TEST(DegenerateDecomposition, EighDividesInPlace) {
  EXPECT_TRUE(ask(
      kName, backward("LinalgEighBackward0", "aten::div_", kNaN, {not_kept(tensor("self", 0)), tensor("other", 0)})));
}

TEST(DegenerateDecomposition, IsSilentWhereNothingWasZeroOrNothingDecomposed) {
  EXPECT_FALSE(ask(kName, svd(0.1)));
  EXPECT_FALSE(ask(
      kName,
      of_forward(backward("SqrtBackward0", "aten::div", kNaN, {tensor("self", 0), tensor("other", 0)}), "aten::sqrt")));
}

}  // namespace
}  // namespace firstfault::reason::hand_made
