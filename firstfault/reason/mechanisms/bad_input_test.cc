// The value was in a tensor before any op made it.
#include "firstfault/reason/mechanisms/hand_made.h"

#include <gtest/gtest.h>

namespace firstfault::reason::hand_made {
namespace {

constexpr auto kName = "bad_input";

OriginEvidence held_by(TensorRole role, const std::string& name, const std::string& reader = "aten::addmm") {
  auto evidence = forward(reader, kNaN, {});
  evidence.role = role;
  evidence.role_name = name;
  evidence.index = {0, 3};
  evidence.output.nan = 12;
  return evidence;
}

TEST(BadInput, NamesTheParameterAndTheOpThatReadIt) {
  const auto verdict = ask(kName, held_by(TensorRole::parameter, "fc.weight"));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->cause, "bad_init");
  EXPECT_EQ(verdict->because,
            "the NaN was already in parameter 'fc.weight' when aten::addmm read it, at [0, 3] (12 of 5,120 elements "
            "are non-finite)");
}

TEST(BadInput, TheBatchBuffersAndOutsideTensorsAreData) {
  for (const TensorRole role : {TensorRole::batch, TensorRole::buffer, TensorRole::outside, TensorRole::gradient}) {
    const auto verdict = ask(kName, held_by(role, ""));
    ASSERT_TRUE(verdict);
    EXPECT_EQ(verdict->cause, "data_nonfinite");
  }
  EXPECT_TRUE(contains(ask(kName, held_by(TensorRole::batch, ""))->because, "already in the batch when"));
}

TEST(BadInput, ReaderMayBeAnInPlaceOpOrNotKnown) {
  EXPECT_TRUE(contains(ask(kName, held_by(TensorRole::batch, "x", "aten::sub_"))->because, "aten::sub_ read it"));
  EXPECT_FALSE(contains(ask(kName, held_by(TensorRole::batch, "x", ""))->because, "read it"));
}

TEST(BadInput, ANumberThatTheProgramWroteIsNotCalledPartOfTheBatch) {
  auto evidence = held_by(TensorRole::batch, "", "aten::copy_");
  evidence.shape = {};
  evidence.index = {};
  const auto verdict = ask(kName, evidence);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->cause, "data_nonfinite");
  EXPECT_EQ(verdict->because, "the program itself wrote NaN into a tensor (aten::copy_ of a single number)");
}

TEST(BadInput, IsSilentWhereAnOpMadeTheValue) {
  EXPECT_FALSE(ask(kName, held_by(TensorRole::none, "")));
  EXPECT_FALSE(ask(kName, held_by(TensorRole::unwritten, "")));
}

}  // namespace
}  // namespace firstfault::reason::hand_made
