// After fork() the run file is the parent's alone.
#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "firstfault/base/error.h"
#include "firstfault/record/read_run.h"
#include "firstfault/record/run_file.h"
#include "firstfault/record/storage/test_vfs.h"
#include "firstfault/record/test_files.h"

namespace {
bool is_forked_child = false;
}  // namespace

/// Asked by the leak sanitizer at exit. In a forked child it would report what the parent's other threads held on their
/// stacks, which do not exist there.
extern "C" int __lsan_is_turned_off() { return is_forked_child ? 1 : 0; }

namespace firstfault::record {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// Exit code of `child` run in a fork; -1 where it did not end within ten seconds.
int in_child(const std::function<void()>& child) {
  const pid_t pid = fork();
  if (pid == 0) {
    is_forked_child = true;
    child();
    _exit(99);
  }
  for (int i = 0; i < 1000; ++i) {
    int status = 0;
    if (waitpid(pid, &status, WNOHANG) == pid) return WIFEXITED(status) ? WEXITSTATUS(status) : -2;
    std::this_thread::sleep_for(milliseconds(10));
  }
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  return -1;
}

void use_everything(RunFile& file) {
  record_hand_made(file, 1000, 3);
  file.flush(seconds(10));
  file.close(RunState::died);
}

TEST(RunFileFork, TheChildsCallsDoNothing) {
  const TestFolder folder;
  auto file = std::make_unique<RunFile>(folder.file("run.ffrun"));
  file->add_row(hand_made_row(0, 0));
  ASSERT_TRUE(file->flush(seconds(10)));
  std::this_thread::sleep_for(milliseconds(50));  // the sanitizers' allocator is not safe to fork while it is in use
  EXPECT_EQ(in_child([&] {
              use_everything(*file);
              file.reset();
              _exit(3);
            }),
            3);
  EXPECT_EQ(in_child([&] {
              file->add_row(hand_made_row(1, 0));
              exit(4);
            }),
            4);
  file->add_row(hand_made_row(7, 0));
  file.reset();
  const auto run = read_run(folder.file("run.ffrun"));
  EXPECT_EQ(run.state, RunState::complete);
  ASSERT_EQ(run.rows.size(), 2u);
  EXPECT_EQ(run.rows[1].step, 7);
}

TEST(RunFileFork, ManyForksInTheMidstOfWritingLeaveTheFileWhole) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizers' allocator stays locked in a child forked while another thread allocates";
#endif
  const TestFolder folder;
  RunFile file(folder.file("run.ffrun"), {.commit_every = milliseconds(1), .checkpoint_every = milliseconds(3)});
  for (int i = 0; i < 3; ++i) file.add_site(hand_made_site(i));
  std::atomic<bool> done{false};
  std::int64_t steps = 0;
  std::thread trainer([&] {
    while (!done) file.add_row(hand_made_row(steps++, 3));
  });
  for (int i = 0; i < 30; ++i) {
    const auto child = [&] {
      use_everything(file);
      if (i % 2 == 0) _exit(5);
      exit(5);
    };
    EXPECT_EQ(in_child(child), 5);
  }
  done = true;
  trainer.join();
  file.close(RunState::complete);
  EXPECT_EQ(file.problem(), "");
  const auto run = read_run(folder.file("run.ffrun"));
  EXPECT_TRUE(run.warnings.empty());
  EXPECT_EQ(run.steps, steps);
  EXPECT_EQ(run.state, RunState::complete);
}

TEST(RunFileFork, AChildMayRecordIntoAFileOfItsOwn) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizers' allocator may be locked in a child, and the thread sanitizer allows it no threads";
#endif
  const TestFolder folder;
  RunFile file(folder.file("run.ffrun"));
  record_hand_made(file);
  EXPECT_EQ(in_child([&] {
              RunFile own(folder.file("child.ffrun"));
              record_hand_made(own, 8);
              own.close(RunState::complete);
              _exit(own.problem().empty() ? 6 : 7);
            }),
            6);
  EXPECT_EQ(read_run(folder.file("child.ffrun")).rows.size(), 8u);
}

TEST(RunFileFork, AForkWhileTheWriterIsStuckInTheDiskEndsAndTheChildSaysSo) {
  const TestFolder folder;
  TestVfs disk("stuck");
  RunFile file(folder.file("run.ffrun"), {.commit_every = milliseconds(1), .vfs = "stuck"});
  file.add_row(hand_made_row(0, 0));
  ASSERT_TRUE(file.flush(seconds(10)));
  disk.write_milliseconds = 5000;
  const int before = disk.writes;
  file.add_transition({0, -1, Condition::healthy, Condition::dead});
  while (disk.writes == before) std::this_thread::sleep_for(milliseconds(1));
  disk.write_milliseconds = 0;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(in_child([&] {
              use_everything(file);
              int refused = 0;
              try {
                RunFile own(folder.file("child.ffrun"));
              } catch (const Error&) {
                ++refused;
              }
              try {
                read_run(folder.file("run.ffrun"));
              } catch (const Error&) {
                ++refused;
              }
              exit(refused);
            }),
            2);
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(4));
  file.close(RunState::complete);
  EXPECT_EQ(file.problem(), "");
  EXPECT_EQ(read_run(folder.file("run.ffrun")).transitions.size(), 1u);
}

}  // namespace
}  // namespace firstfault::record
