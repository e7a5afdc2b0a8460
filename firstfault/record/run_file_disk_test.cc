// What the run file does when the disk does not do its part.
#include <chrono>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "firstfault/base/error.h"
#include "firstfault/record/read_run.h"
#include "firstfault/record/run_file.h"
#include "firstfault/record/storage/test_vfs.h"
#include "firstfault/record/test_files.h"

namespace firstfault::record {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(RunFileDisk, GoesOnRecordingOnceAFullDiskHasRoom) {
  const TestFolder folder;
  TestVfs disk("full");
  {
    RunFile file(folder.file("run.ffrun"), {.commit_every = milliseconds(1), .vfs = "full"});
    file.add_row(hand_made_row(0, 0));
    ASSERT_TRUE(file.flush(seconds(10)));
    disk.write_error = SQLITE_FULL;
    for (std::int64_t step = 1; step < 1000; ++step) file.add_row(hand_made_row(step, 0));
    file.add_transition({999, -1, Condition::healthy, Condition::dead});
    EXPECT_FALSE(file.flush(seconds(10)));
    EXPECT_NE(file.problem().find("cannot be written to for now (database or disk is full)"), std::string::npos);
    EXPECT_EQ(read_run(folder.file("run.ffrun")).rows.size(), 1u);
    disk.write_error = SQLITE_OK;
    EXPECT_TRUE(file.flush(seconds(10)));
  }
  const auto run = read_run(folder.file("run.ffrun"));
  EXPECT_EQ(run.rows.size(), 1000u);
  EXPECT_EQ(run.transitions.size(), 1u);
  EXPECT_EQ(run.state, RunState::complete);
  ASSERT_EQ(run.warnings.size(), 1u);
  EXPECT_NE(run.warnings[0].find("for now"), std::string::npos);
}

TEST(RunFileDisk, KeepsWhatWasWrittenBeforeTheDiskWasFull) {
  for (const int error : {SQLITE_FULL, SQLITE_IOERR_WRITE}) {
    const TestFolder folder;
    TestVfs disk("broken");
    RunFile file(folder.file("run.ffrun"), {.vfs = "broken"});
    record_hand_made(file);
    ASSERT_TRUE(file.flush(seconds(10)));
    disk.write_error = error;
    file.add_row(hand_made_row(20, 12));
    file.close(RunState::complete);
    EXPECT_NE(file.problem(), "");
    const auto run = read_run(folder.file("run.ffrun"));
    EXPECT_EQ(run.rows.size(), 20u);
    EXPECT_EQ(run.origins.size(), 2u);
    EXPECT_NE(run.state, RunState::complete);
  }
}

TEST(RunFileDisk, ThrowsWhereTheDiskIsFullAtTheStart) {
  const TestFolder folder;
  TestVfs disk("full");
  disk.write_error = SQLITE_FULL;
  EXPECT_THROW(RunFile(folder.file("run.ffrun"), {.vfs = "full"}), Error);
  EXPECT_FALSE(std::filesystem::exists(folder.file("run.ffrun")));
}

TEST(RunFileDisk, RecordsWithoutSharedMemoryAndIsReadMeanwhile) {
  const TestFolder folder;
  TestVfs disk("remote");
  disk.has_shared_memory = false;
  RunFile file(folder.file("run.ffrun"), {.vfs = "remote"});
  record_hand_made(file);
  ASSERT_TRUE(file.flush(seconds(10)));
  EXPECT_FALSE(std::filesystem::exists(folder.file("run.ffrun-shm")));
  EXPECT_EQ(read_run(folder.file("run.ffrun")).origins.size(), 2u);
  file.close(RunState::complete);
  EXPECT_EQ(file.problem(), "");
  EXPECT_EQ(read_run(folder.file("run.ffrun")).rows.size(), 20u);
}

TEST(RunFileDisk, NeverKeepsTheTrainingWaitingForASlowDisk) {
  const TestFolder folder;
  TestVfs disk("slow");
  RunFile file(folder.file("run.ffrun"), {.commit_every = milliseconds(1), .vfs = "slow"});
  disk.write_milliseconds = 300;
  file.add_transition({0, -1, Condition::healthy, Condition::dead});
  const int before = disk.writes;
  while (disk.writes == before) std::this_thread::sleep_for(milliseconds(1));
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t step = 0; step < 100; ++step) file.add_row(hand_made_row(step, 2));
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(250));
  disk.write_milliseconds = 0;
}

}  // namespace
}  // namespace firstfault::record
