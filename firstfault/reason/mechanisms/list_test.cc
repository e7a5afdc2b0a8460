// The list itself.
#include <set>
#include <string_view>

#include <gtest/gtest.h>

#include "firstfault/reason/mechanisms/mechanism.h"

namespace firstfault::reason {
namespace {

TEST(Mechanisms, HaveOneNameEach) {
  std::set<std::string_view> names;
  for (const Mechanism& mechanism : mechanisms()) {
    EXPECT_FALSE(mechanism.condition.empty() || mechanism.reading.empty() || mechanism.remedy.empty())
        << mechanism.name;
    EXPECT_TRUE(names.insert(mechanism.name).second) << mechanism.name;
  }
  EXPECT_EQ(names.size(), 20U);
}

TEST(Mechanisms, AreAllSilentOnEmptyEvidence) {
  for (const Mechanism& mechanism : mechanisms()) EXPECT_FALSE(mechanism.judge(OriginEvidence{})) << mechanism.name;
}

}  // namespace
}  // namespace firstfault::reason
