#include "firstfault/record/read_run.h"

#include <chrono>
#include <filesystem>
#include <random>
#include <string>

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "firstfault/base/error.h"
#include "firstfault/record/run_file.h"
#include "firstfault/record/storage/opened_run.h"
#include "firstfault/record/storage/sqlite.h"
#include "firstfault/record/test_files.h"

namespace firstfault::record {
namespace {

using std::chrono::seconds;

class ReadRun : public testing::Test {
 protected:
  void SetUp() override {
    RunFile file(path());
    record_hand_made(file, 200, 12);
  }
  std::string path(const std::string& name = "run.ffrun") const { return folder_.file(name); }
  /// What read_run says against the file; "" where it reads it.
  static std::string refusal(const std::string& path) {
    try {
      read_run(path);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  void change(const std::string& sql) const {
    Database database(path(), SQLITE_OPEN_READWRITE);
    database.execute(sql);
  }
  TestFolder folder_;
};

TEST_F(ReadRun, SaysInOneSentenceWhyAFileIsNoRunFile) {
  const auto quoted = [&](const std::string& name) { return "'" + path(name) + "'"; };
  EXPECT_EQ(refusal(path("none")), "There is no file " + quoted("none") + ".");
  EXPECT_EQ(refusal(folder_.path().string()), "'" + folder_.path().string() + "' is a folder, not a run file.");
  write_bytes(path("empty"), "");
  EXPECT_EQ(refusal(path("empty")), quoted("empty") + " is empty: no run file.");
  write_bytes(path("text"), "text");
  EXPECT_EQ(refusal(path("text")),
            quoted("text") + " is no run file: it is no SQLite database, or its beginning is damaged.");
  Database(path("foreign"), SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE).execute("CREATE TABLE steps (step)");
  EXPECT_EQ(refusal(path("foreign")), quoted("foreign") + " is a SQLite database of another program, not a run file.");
  EXPECT_EQ(refusal("/dev/null"), "'/dev/null' is no regular file.");
  change("PRAGMA user_version = 3");
  EXPECT_EQ(refusal(path()), quoted("run.ffrun") +
                                 " was written by a newer firstfault (run file version 3, this one reads up to 2): "
                                 "update firstfault.");
}

TEST_F(ReadRun, EscapesAPathInAMessage) { EXPECT_EQ(refusal("/no\x1b[31m"), "There is no file '/no\\x1b[31m'."); }

TEST_F(ReadRun, ReadsAPathWithEveryCharacter) {
  const std::string odd = path("a?b#c%41 d'e.ffrun");
  std::filesystem::copy_file(path(), odd);
  EXPECT_EQ(read_run(odd).rows.size(), 200u);
}

TEST_F(ReadRun, LeavesOutRowsThatMakeNoSense) {
  change("UPDATE sites SET role = 'no such' WHERE id = 3");
  change("UPDATE transitions SET site = 99 WHERE id = 1");
  change("UPDATE origins SET json = '{' WHERE id = 2");
  change("UPDATE health SET data = x'0102' WHERE step = 5");
  change("UPDATE steps SET loss_state = x'00' WHERE step = 6");
  change("UPDATE facts SET numbers = '[]'");
  const auto run = read_run(path());
  EXPECT_EQ(run.sites.size(), 12u);
  EXPECT_EQ(run.transitions.size(), 1u);
  EXPECT_EQ(run.origins.size(), 1u);
  EXPECT_EQ(run.rows.size(), 199u);
  EXPECT_TRUE(run.rows[5].sites.empty());
  EXPECT_EQ(run.rows[6].step, 7);
  EXPECT_EQ(run.facts.size(), 0u);
  EXPECT_NE(std::find(run.warnings.begin(), run.warnings.end(), "1 rows of table origins are damaged and left out."),
            run.warnings.end());
}

TEST_F(ReadRun, IsNotHeldUpByAHostileFile) {
  change("DROP TABLE warnings");
  change(
      "CREATE VIEW warnings AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS text FROM "
      "n");
  change("DROP TABLE facts");
  change("UPDATE health SET data = zeroblob(60000000) WHERE step = 1");
  change("INSERT INTO origins SELECT NULL, 0, '', '', '', '', '', '[' || hex(zeroblob(4000000)) || ']'");
  change("INSERT INTO sites VALUES (100000000, 'loss', '', '', '', '', '[]', 0)");
  change(
      "INSERT INTO steps SELECT 1000 + value, 0, 0, 'finite', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '{}' FROM (WITH RECURSIVE "
      "n(value) "
      "AS (SELECT 1 UNION ALL SELECT value + 1 FROM n LIMIT 100000) SELECT value FROM n)");
  const auto run = read_run(path());
  EXPECT_EQ(run.sites.size(), 12u);
  EXPECT_EQ(run.rows.size(), 20'000u);
  EXPECT_EQ(run.origins.size(), 2u);
  EXPECT_GE(run.warnings.size(), 5u);
}

TEST_F(ReadRun, ReadsWhatIsLeftOfAFileThatIsCutOff) {
  const std::string whole = bytes_of(path());
  int read = 0;
  int most = 0;
  for (std::size_t size = 0; size < whole.size(); size += 512) {
    write_bytes(path("cut"), whole.substr(0, size));
    try {
      const auto run = read_run(path("cut"));
      ++read;
      most = std::max(most, static_cast<int>(run.rows.size()));
      EXPECT_FALSE(run.warnings.empty()) << size;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("cut"), std::string::npos);
    }
  }
  EXPECT_GT(read, static_cast<int>(whole.size() / 512) / 2);
  EXPECT_GT(most, 100);
}

TEST_F(ReadRun, NeitherCrashesNorHangsOnFlippedBits) {
  const std::string whole = bytes_of(path());
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    std::string damaged = whole;
    for (int flip = 0; flip <= round % 8; ++flip) {
      const std::size_t most = round % 2 == 0 ? damaged.size() : 16 * 4096;
      damaged[random() % most] ^= static_cast<char>(1u << random() % 8);
    }
    write_bytes(path("flipped"), damaged);
    try {
      EXPECT_LE(read_run(path("flipped")).rows.size(), 20'000u);
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("flipped"), std::string::npos);
    }
  }
}

TEST_F(ReadRun, CopiesFileAndWalWhereItCannotWrite) {
  const std::string closed = path("closed");
  std::filesystem::create_directory(closed);
  RunFile file(closed + "/run.ffrun", {.checkpoint_every = std::chrono::hours(1)});
  record_hand_made(file);
  ASSERT_TRUE(file.flush(seconds(10)));
  file.add_row(hand_made_row(20, 12));
  ASSERT_TRUE([&] {
    while (read_run(closed + "/run.ffrun").rows.size() < 21) usleep(1000);
    return true;
  }());
  // As a crash leaves it on another machine: with -wal, without -shm.
  const std::string copy = path("copy");
  std::filesystem::create_directory(copy);
  ASSERT_TRUE(copy_run_file(closed + "/run.ffrun", copy + "/run.ffrun"));
  chmod(copy.c_str(), 0555);
  chmod(folder_.path().c_str(), 0755);
  const pid_t child = fork();
  if (child == 0) {
    if (getuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(50);  // root may write everywhere
    if (access(copy.c_str(), W_OK) == 0) _exit(51);
    try {
      const auto run = read_run(copy + "/run.ffrun");
      _exit(run.warnings.size() == 1 ? static_cast<int>(run.rows.size()) : 52);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      _exit(53);
    }
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 21);
  chmod(copy.c_str(), 0755);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(copy), std::filesystem::directory_iterator()), 2);
}

TEST_F(ReadRun, IsQuickOnTheFileOfALongRun) {
  {
    RunFile file(path("long"));
    for (int i = 0; i < 200; ++i) file.add_site(hand_made_site(i));
    const StepRow full = hand_made_row(3, 200);
    const StepRow empty = hand_made_row(3, 0);
    for (std::int64_t step = 0; step < 1'000'000; ++step) {
      // Only the rows that stay need their sites.
      StepRow row = step < 100 || step > 999'000 ? full : empty;
      row.step = step;
      file.add_row(std::move(row));
      if (step % 10'000 == 77) file.add_transition({step, 3, Condition::healthy, Condition::spiking});
    }
  }
  const auto start = std::chrono::steady_clock::now();
  const auto run = read_run(path("long"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(2));  // 0.03 s; tests may run on busy machines
  EXPECT_EQ(run.steps, 1'000'000);
  EXPECT_LE(run.rows.size(), 8192u);
  EXPECT_LT(std::filesystem::file_size(path("long")), 30'000'000u);
}

}  // namespace
}  // namespace firstfault::record
