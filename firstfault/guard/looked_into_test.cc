#include "firstfault/guard/looked_into.h"

#include <gtest/gtest.h>

namespace firstfault::guard {
namespace {

Origin origin_at(const std::string& op, const std::string& module = "model") {
  Origin origin;
  origin.op = op;
  origin.module = module;
  return origin;
}

TEST(LookedInto, TheFirstFaultyStepIsWantedAndTheSameFaultOnlyOnce) {
  LookedInto known(true, 2);
  const Origin log = origin_at("aten::log"), elsewhere = origin_at("aten::log", "model.head");
  EXPECT_TRUE(known.wants("loss", &log));
  known.add("loss", &log);
  EXPECT_FALSE(known.wants("gradient", &log));
  EXPECT_TRUE(known.wants("loss", &elsewhere));
}

TEST(LookedInto, WithoutAnOriginTheKindOfFaultTellsThemApart) {
  LookedInto known(true, 2);
  known.add("loss", nullptr);
  EXPECT_FALSE(known.wants("loss", nullptr));
  EXPECT_TRUE(known.wants("result", nullptr));
}

TEST(LookedInto, AfterFourNoneIsWanted) {
  LookedInto known(true, 2);
  for (const char* op : {"a", "b", "c", "d"}) {
    const Origin origin = origin_at(op);
    EXPECT_TRUE(known.wants("loss", &origin));
    known.add("loss", &origin);
  }
  const Origin fifth = origin_at("e");
  EXPECT_FALSE(known.wants("loss", &fifth));
}

TEST(LookedInto, AfterFourOfOneKindNoneIsWantedEither) {
  LookedInto known(true, 2);
  const Origin found = origin_at("aten::log");
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(known.wants("loss", nullptr));  // not seen by the watch, found by the replays
    known.add("loss", &found);
  }
  EXPECT_FALSE(known.wants("loss", nullptr));
}

TEST(LookedInto, SixteenStepsAreSearchedForTheirOriginAlone) {
  LookedInto known(false, 2), without(true, 0);
  for (int i = 0; i < 16; ++i) EXPECT_TRUE(known.may_search());
  EXPECT_FALSE(known.may_search());
  EXPECT_FALSE(without.may_search());
}

TEST(LookedInto, NeitherASpikeNorARunWithoutReplays) {
  EXPECT_FALSE(LookedInto(true, 2).wants("spike", nullptr));
  EXPECT_FALSE(LookedInto(true, 0).wants("loss", nullptr));
  EXPECT_FALSE(LookedInto(false, 2).wants("loss", nullptr));
}

}  // namespace
}  // namespace firstfault::guard
