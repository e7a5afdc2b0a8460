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

TEST(LookedInto, NeitherASpikeNorARunWithoutReplays) {
  EXPECT_FALSE(LookedInto(true, 2).wants("spike", nullptr));
  EXPECT_FALSE(LookedInto(true, 0).wants("loss", nullptr));
  EXPECT_FALSE(LookedInto(false, 2).wants("loss", nullptr));
}

}  // namespace
}  // namespace firstfault::guard
