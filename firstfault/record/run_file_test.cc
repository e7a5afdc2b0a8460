#include "firstfault/record/run_file.h"

#include <chrono>
#include <filesystem>
#include <thread>

#include <gtest/gtest.h>
#include <sqlite3.h>

#include "firstfault/base/error.h"
#include "firstfault/record/history.h"
#include "firstfault/record/read_run.h"
#include "firstfault/record/test_files.h"

namespace firstfault::record {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

RunFileOptions slow() {
  RunFileOptions options;
  options.commit_every = options.checkpoint_every = std::chrono::hours(1);
  return options;
}

template <class Condition>
bool comes_true(const Condition& condition) {
  for (int i = 0; i < 1000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return false;
}

TEST(RunFile, IsReadAsTheRunInMemory) {
  const TestFolder folder;
  History history;
  record_hand_made(history);
  {
    RunFile file(folder.file("run.ffrun"));
    record_hand_made(file);
  }
  history.set_state(RunState::complete);
  EXPECT_EQ(RunText::of(read_run(folder.file("run.ffrun"))), RunText::of(history.snapshot()));
}

TEST(RunFile, IsReadAsTheRunInMemoryAfterManySteps) {
  const TestFolder folder;
  History history;
  {
    RunFile file(folder.file("run.ffrun"), {.commit_every = milliseconds(1)});
    for (int i = 0; i < 4; ++i) {
      history.add_site(hand_made_site(i));
      file.add_site(hand_made_site(i));
    }
    for (std::int64_t step = 0; step < 20'000; ++step) {
      const StepRow row = hand_made_row(step, 4);
      history.add_row(row);
      file.add_row(row);
      if (step % 250 == 17) {
        const Transition event{step, 1, Condition::healthy, Condition::spiking, 3, 1, 1};
        history.add_transition(event);
        file.add_transition(event);
      }
      Fact fact = hand_made_fact(step);
      fact.detail = std::to_string(step % 3);
      history.merge_fact(fact);
      file.merge_fact(fact);
    }
    EXPECT_EQ(file.problem(), "");
  }
  history.set_state(RunState::complete);
  EXPECT_EQ(RunText::of(read_run(folder.file("run.ffrun"))), RunText::of(history.snapshot()));
}

TEST(RunFile, LeavesOneFileWhenItIsClosed) {
  const TestFolder folder;
  {
    RunFile file(folder.file("run.ffrun"));
    record_hand_made(file);
  }
  read_run(folder.file("run.ffrun"));
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) names.push_back(entry.path().filename());
  EXPECT_EQ(names, std::vector<std::string>{"run.ffrun"});
}

TEST(RunFile, CanBeReadWhileItIsWritten) {
  const TestFolder folder;
  RunFile file(folder.file("run.ffrun"), {.commit_every = milliseconds(1), .checkpoint_every = milliseconds(5)});
  file.add_site(hand_made_site(0));
  std::int64_t before = -1;
  std::int64_t step = 0;
  for (int i = 0; i < 50; ++i) {
    for (int k = 0; k < 100; ++k) file.add_row(hand_made_row(step++, 1));
    const auto run = read_run(folder.file("run.ffrun"));
    EXPECT_EQ(run.state, RunState::recording);
    EXPECT_TRUE(run.warnings.empty()) << run.warnings[0];
    EXPECT_GE(run.steps, before);
    EXPECT_EQ(run.rows.empty() ? 0 : run.rows.back().step + 1, run.steps);
    before = run.steps;
  }
  ASSERT_TRUE(file.flush(seconds(10)));
  EXPECT_EQ(read_run(folder.file("run.ffrun")).steps, step);
}

TEST(RunFile, CommitsAndCheckpointsATransitionAtOnce) {
  const TestFolder folder;
  RunFile file(folder.file("run.ffrun"), slow());
  record_hand_made(file, 10, 12);
  const auto main_file_has_it = [&] {
    std::filesystem::copy_file(folder.file("run.ffrun"), folder.file("alone.ffrun"),
                               std::filesystem::copy_options::overwrite_existing);
    const auto run = read_run(folder.file("alone.ffrun"));
    return run.transitions.size() == 2 && run.origins.size() == 2 && run.rows.size() == 10;
  };
  EXPECT_TRUE(comes_true(main_file_has_it));
}

TEST(RunFile, CommitsNumbersByTheClock) {
  const TestFolder folder;
  RunFile file(folder.file("run.ffrun"), {.commit_every = milliseconds(50), .checkpoint_every = std::chrono::hours(1)});
  file.add_row(hand_made_row(0, 0));
  EXPECT_TRUE(comes_true([&] { return read_run(folder.file("run.ffrun")).rows.size() == 1; }));
}

TEST(RunFile, SaysHowManyCommitsTheMissingWalHeld) {
  const TestFolder folder;
  RunFile file(folder.file("run.ffrun"), {.commit_every = milliseconds(1), .checkpoint_every = std::chrono::hours(1)});
  file.add_row(hand_made_row(0, 0));
  ASSERT_TRUE(file.flush(seconds(10)));
  for (std::int64_t step = 1; step < 4; ++step) {
    file.add_row(hand_made_row(step, 0));
    ASSERT_TRUE(comes_true([&] { return read_run(folder.file("run.ffrun")).steps == step + 1; }));
  }
  std::filesystem::copy_file(folder.file("run.ffrun"), folder.file("alone.ffrun"));
  const auto run = read_run(folder.file("alone.ffrun"));
  EXPECT_EQ(run.rows.size(), 1u);
  ASSERT_EQ(run.warnings.size(), 1u);
  EXPECT_EQ(run.warnings[0].substr(0, 45), "The last 3 commits of this run are missing: t");
}

TEST(RunFile, MovesAnEarlierRunAway) {
  const TestFolder folder;
  for (const std::int64_t steps : {3, 5}) {
    RunFile file(folder.file("run.ffrun"));
    record_hand_made(file, steps);
  }
  EXPECT_EQ(read_run(folder.file("run.ffrun")).steps, 5);
  EXPECT_EQ(read_run(folder.file("run.ffrun.previous")).steps, 3);
}

TEST(RunFile, RefusesPlacesThatAreTaken) {
  const TestFolder folder;
  const auto problem = [&](const std::string& path) -> std::string {
    try {
      RunFile file(path);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const RunFile recording(folder.file("run.ffrun"));
  EXPECT_NE(problem(folder.file("run.ffrun")).find("is recording the run file"), std::string::npos);
  write_bytes(folder.file("notes.txt"), "some text that is no database");
  EXPECT_NE(problem(folder.file("notes.txt")).find("is no run file, so it is not replaced"), std::string::npos);
  EXPECT_EQ(bytes_of(folder.file("notes.txt")), "some text that is no database");
  EXPECT_NE(problem(folder.path().string()).find("is a folder"), std::string::npos);
  EXPECT_NE(problem(folder.file("missing/run.ffrun")).find("there is no folder"), std::string::npos);
  EXPECT_NE(problem("/proc/run.ffrun").find("cannot be made"), std::string::npos);
  EXPECT_NE(problem("").find("has no name"), std::string::npos);
  RunFileOptions small;
  small.max_bytes = 1000;
  EXPECT_THROW(RunFile(folder.file("b.ffrun"), small), Error);
}

TEST(RunFile, StopsWhenItsFileIsRemovedOrReplaced) {
  for (const bool replaced : {false, true}) {
    const TestFolder folder;
    RunFile file(folder.file("run.ffrun"));
    record_hand_made(file);
    ASSERT_TRUE(file.flush(seconds(10)));
    std::filesystem::remove(folder.file("run.ffrun"));
    if (replaced) write_bytes(folder.file("run.ffrun"), "mine");
    file.add_transition({7, 0, Condition::healthy, Condition::dead});
    EXPECT_FALSE(file.flush(seconds(10)));
    EXPECT_NE(file.problem().find("removed or replaced"), std::string::npos);
    file.add_row(hand_made_row(100, 0));
    file.close(RunState::complete);
    EXPECT_EQ(bytes_of(folder.file("run.ffrun")), replaced ? "mine" : "");
  }
}

TEST(RunFile, DoesNothingAfterItIsClosed) {
  const TestFolder folder;
  RunFile file(folder.file("run.ffrun"));
  file.add_row(hand_made_row(0, 0));
  file.close(RunState::died);
  file.close(RunState::complete);
  file.add_row(hand_made_row(1, 0));
  EXPECT_FALSE(file.flush(milliseconds(1)));
  const auto run = read_run(folder.file("run.ffrun"));
  EXPECT_EQ(run.state, RunState::died);
  EXPECT_EQ(run.rows.size(), 1u);
}

TEST(RunFile, TakesIntakeFromManyThreads) {
  const TestFolder folder;
  {
    RunFile file(folder.file("run.ffrun"), {.commit_every = milliseconds(1)});
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 200; ++i) {
          Fact fact = hand_made_fact(i);
          fact.detail = std::to_string(i % 10);
          file.merge_fact(fact);
          if (i % 50 == t) file.flush(seconds(10));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  const auto run = read_run(folder.file("run.ffrun"));
  ASSERT_EQ(run.facts.size(), 10u);
  for (const Fact& fact : run.facts) EXPECT_EQ(fact.count, 80);
}

TEST(RunFile, StaysBelowItsLimitOfBytes) {
  const TestFolder folder;
  constexpr std::int64_t kLimit = 16'000'000;
  std::uintmax_t most = 0;
  {
    RunFile file(folder.file("run.ffrun"), {.max_bytes = kLimit, .commit_every = milliseconds(1)});
    for (int i = 0; i < 1000; ++i) file.add_site(hand_made_site(i));
    for (std::int64_t step = 0; step < 3000; ++step) {
      file.add_row(hand_made_row(step, 1000));
      if (step % 100 == 0) {
        file.flush(seconds(10));
        std::error_code none;
        const auto wal = std::filesystem::file_size(folder.file("run.ffrun-wal"), none);
        most = std::max(most, std::filesystem::file_size(folder.file("run.ffrun")) + (none ? 0 : wal));
      }
    }
    EXPECT_EQ(file.problem(), "");
  }
  EXPECT_LE(most, kLimit);
  const auto run = read_run(folder.file("run.ffrun"));
  EXPECT_EQ(run.rows.size(), 3000u);
  EXPECT_EQ(run.rows.back().sites.size(), 1000u);
}

}  // namespace
}  // namespace firstfault::record
