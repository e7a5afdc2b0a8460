// The queries of docs/run-file.md, on a run whose answers are known.
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sqlite3.h>

#include "firstfault/record/run_file.h"
#include "firstfault/record/storage/schema.h"
#include "firstfault/record/storage/sqlite.h"
#include "firstfault/record/test_files.h"

namespace firstfault::record {
namespace {

/// The blocks of SQL, by the line of prose above each.
std::map<std::string, std::string> documented_queries() {
  const std::string page = bytes_of(std::string(FIRSTFAULT_SOURCE_DIR) + "/docs/run-file.md");
  std::map<std::string, std::string> queries;
  const std::string begin = "\n\n```sql\n";
  for (std::size_t at = page.find(begin); at != std::string::npos; at = page.find(begin, at + 1)) {
    const std::size_t line = page.rfind('\n', at - 1) + 1;
    const std::size_t sql = at + begin.size();
    queries[page.substr(line, at - line)] = page.substr(sql, page.find("```", sql) - sql);
  }
  return queries;
}

class RunFileQueries : public testing::Test {
 protected:
  void SetUp() override {
    RunFile file(folder_.file("run.ffrun"));
    record_hand_made(file);
    file.close(RunState::complete);
    database_ = Database(folder_.file("run.ffrun"), SQLITE_OPEN_READONLY);
  }
  /// Cells joined by "|", rows by newlines.
  std::string answer(const std::string& question) {
    const auto found = queries_.find(question);
    if (found == queries_.end()) return "docs/run-file.md has no such question";
    asked_.push_back(question);
    return rows(found->second);
  }
  std::string rows(const std::string& sql) {
    Statement statement(database_.get(), sql);
    std::string text;
    while (statement.next()) {
      if (!text.empty()) text += '\n';
      // As many columns as there are.
      for (int column = 0; column < columns(sql); ++column) {
        text += (column > 0 ? "|" : "") + std::string(statement.text(column));
      }
    }
    return text;
  }
  int columns(const std::string& sql) const {
    sqlite3_stmt* statement = nullptr;
    sqlite3_prepare_v2(database_.get(), sql.c_str(), -1, &statement, nullptr);
    const int count = sqlite3_column_count(statement);
    sqlite3_finalize(statement);
    return count;
  }

  TestFolder folder_;
  Database database_;
  std::map<std::string, std::string> queries_ = documented_queries();
  std::vector<std::string> asked_;
};

TEST_F(RunFileQueries, GiveTheAnswers) {
  EXPECT_EQ(answer("The loss curve, with the gradient norm:").substr(0, 31), "0|1.0|2.0\n1|0.5|3.0\n2|0.3333333");
  EXPECT_EQ(answer("What happened, in order:"),
            "5|site 4|model.0|healthy|exploding|1000000.0|0.5\n6|site 2|model.0|healthy|saturated|0.9|");
  // The rms of site i at step s is 1000 + s + i/16.
  EXPECT_EQ(answer("The worst gradient of each module, over the whole run, and when:"),
            "model.1|site 10|1019.625|19\nmodel.0|site 4|1019.25|19");
  EXPECT_EQ(answer("The transitions of one layer and of what is inside it:"), "");
  EXPECT_EQ(answer("What the learning rate was when something changed first:").substr(0, 29),
            "5|site 4|exploding|0.01666666");
  EXPECT_EQ(answer("Where a NaN or Inf began, and on which line:"), "4|backward|SqrtBackward0|model.0|train.py|12");
  EXPECT_EQ(answer("Which tensors held a NaN or Inf, and since when:"),
            "parameter|site 3|1|10\ninput|site 7|1|10\noptimizer|site 11|1|10");
  EXPECT_EQ(answer("Steps that a GradScaler or a guard left out:"), "2|65536.0|4.0\n9||11.0\n16|65536.0|18.0");
  EXPECT_EQ(answer("What the run was, and whether it is over:"),
            "complete|20|[\"train.py\",\"--lr\",\"0.1\",\"caf\xC3\xA9 \\u001b[31m\"]|0123abcd");
  EXPECT_EQ(answer("The optimizers' settings:"),
            "Adam|[{\"beta1\":0.9,\"eps\":1e-08,\"lr\":0.1},{\"lr\":\"inf\",\"odd\":0.3333333333333333}]\nSGD|[]");
  EXPECT_EQ(asked_.size(), queries_.size()) << "a query of docs/run-file.md is not tested";
}

TEST_F(RunFileQueries, FindTheLayersOfATree) {
  database_ = Database(folder_.file("run.ffrun"), SQLITE_OPEN_READWRITE);
  database_.execute("UPDATE sites SET module = 'model.layers.0.attention' WHERE id = 4");
  EXPECT_EQ(answer("The transitions of one layer and of what is inside it:"), "5|site 4|healthy|exploding|1000000.0");
}

TEST_F(RunFileQueries, FindTheFileMarkedAsOurs) {
  EXPECT_EQ(rows("PRAGMA application_id"), std::to_string(kApplicationId));
  EXPECT_EQ(rows("PRAGMA user_version"), std::to_string(kSchemaVersion));
  EXPECT_EQ(rows("PRAGMA integrity_check"), "ok");
  EXPECT_EQ(rows("SELECT commits FROM run"), std::to_string([&] {
              const std::string head = bytes_of(folder_.file("run.ffrun")).substr(kCommitsOffset, 4);
              return static_cast<int>(head[2]) * 256 + static_cast<int>(head[3]);
            }()));
}

}  // namespace
}  // namespace firstfault::record
