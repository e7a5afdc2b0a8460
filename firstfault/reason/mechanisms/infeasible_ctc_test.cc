// A CTC target that cannot be aligned.
#include "firstfault/reason/mechanisms/hand_made.h"

#include <gtest/gtest.h>

namespace firstfault::reason::hand_made {
namespace {

constexpr auto kName = "infeasible_ctc";

TEST(InfeasibleCtc, NamesTheSequence) {
  auto evidence = forward("aten::_ctc_loss", kPosInf, {with_shape(tensor("log_probs", {}), {10, 4, 20})});
  evidence.index = {2};
  const auto verdict = ask(kName, evidence);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->cause, "data_invalid");
  EXPECT_TRUE(contains(verdict->because, "for sequence 2"));
  EXPECT_TRUE(contains(verdict->because, "at most 10 frames"));
}

TEST(InfeasibleCtc, IsSilentOnScoresThatWereNotKnownToBeFinite) {
  EXPECT_FALSE(ask(kName, forward("aten::_ctc_loss", kPosInf, {unknown(tensor("log_probs", {}))})));
  EXPECT_FALSE(ask(kName, forward("aten::_ctc_loss", kNaN, {tensor("log_probs", {})})));
}

}  // namespace
}  // namespace firstfault::reason::hand_made
