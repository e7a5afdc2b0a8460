// The list itself, and its page in the documentation.
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "firstfault/reason/mechanisms/mechanism.h"

namespace firstfault::reason {
namespace {

/// docs/mechanisms.md of the tree that this file, or the working directory, lies in.
std::string documentation() {
  namespace fs = std::filesystem;
  for (fs::path folder : {fs::absolute(__FILE__).parent_path(), fs::current_path()}) {
    for (; folder.has_relative_path(); folder = folder.parent_path()) {
      std::ifstream page(folder / "docs" / "mechanisms.md");
      if (!page) continue;
      std::ostringstream text;
      text << page.rdbuf();
      return text.str();
    }
  }
  return "";
}

TEST(Mechanisms, HaveOneNameEach) {
  std::set<std::string_view> names;
  for (const Mechanism& mechanism : mechanisms()) {
    EXPECT_FALSE(mechanism.condition.empty()) << mechanism.name;
    EXPECT_TRUE(names.insert(mechanism.name).second) << mechanism.name;
  }
  EXPECT_EQ(names.size(), 19U);
}

TEST(Mechanisms, AreAllSilentOnEmptyEvidence) {
  for (const Mechanism& mechanism : mechanisms()) EXPECT_FALSE(mechanism.judge(OriginEvidence{})) << mechanism.name;
}

TEST(Mechanisms, EachHasItsNameAndConditionInTheDocumentation) {
  const std::string page = documentation();
  ASSERT_FALSE(page.empty()) << "docs/mechanisms.md not found";
  for (const Mechanism& mechanism : mechanisms()) {
    EXPECT_NE(page.find("`" + std::string(mechanism.name) + "`"), std::string::npos) << mechanism.name;
    EXPECT_NE(page.find(mechanism.condition), std::string::npos) << mechanism.name << ": " << mechanism.condition;
  }
}

}  // namespace
}  // namespace firstfault::reason
