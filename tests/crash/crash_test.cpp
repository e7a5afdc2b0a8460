// Processes that die while they record, at random moments and in the midst of a write; what they left is then read in
// place, from the main file alone, and in a read-only folder. Then a file with flipped bits.
//
// usage: crash_test [DEATHS] [FLIPS] [SEED]
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <new>
#include <random>
#include <string>

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "firstfault/base/error.h"
#include "firstfault/record/hand_made.h"
#include "firstfault/record/read_run.h"
#include "firstfault/record/run_file.h"
#include "firstfault/record/storage/opened_run.h"
#include "firstfault/record/storage/test_vfs.h"
#include "firstfault/record/test_files.h"

namespace {

using namespace firstfault;
using namespace firstfault::record;
using std::chrono::milliseconds;

constexpr int kSites = 8;
constexpr std::int64_t kTransitionEvery = 150;

int failures = 0;

void fail(const std::string& what) {
  std::fprintf(stderr, "crash_test: %s\n", what.c_str());
  ++failures;
}

/// Between the process that records and the one that watches it die.
struct Shared {
  std::atomic<bool> recording{false};
  std::atomic<std::int64_t> safe_steps{0};  ///< committed and checkpointed, as flush() promised
  std::atomic<std::int64_t> steps_read{0};
};

enum class Death { killed, segmentation, terminated, exits, in_a_write };
constexpr const char* kDeaths[] = {"kill", "segmentation fault", "termination", "_exit", "kill in a write"};

/// Records until it dies.
[[noreturn]] void record(const std::string& path, Shared& shared, Death death, std::mt19937& random) {
  TestVfs disk("dying");
  RunFile file(path, {.commit_every = milliseconds(2), .checkpoint_every = milliseconds(40), .vfs = "dying"});
  if (death == Death::in_a_write) disk.kill_at_write = disk.writes + 1 + static_cast<int>(random() % 1500);
  file.set_setup(hand_made_setup());
  for (int i = 0; i < kSites; ++i) file.add_site(hand_made_site(i));
  shared.recording = true;
  const std::int64_t last = death == Death::exits ? static_cast<std::int64_t>(random() % 5000) : -1;
  for (std::int64_t step = 0;; ++step) {
    file.add_row(hand_made_row(step, kSites));
    if (step % kTransitionEvery == 0) {
      file.add_transition({step, 1, Condition::healthy, Condition::spiking, static_cast<double>(step)});
    }
    if (step % 400 == 17) file.add_origin(hand_made_origin(step, Outcome::fault));
    if (random() % 100 == 0 && file.flush(std::chrono::seconds(10))) shared.safe_steps = step + 1;
    if (step == last) _exit(0);
    usleep(50);
  }
}

bool is_whole(const StepRow& row) {
  const StepRow expected = hand_made_row(row.step, kSites);
  if (row.loss != expected.loss || row.lr != expected.lr || row.skipped != expected.skipped) return false;
  if (row.sites.empty()) return true;
  return row.sites.size() == kSites && row.sites[3].rms == expected.sites[3].rms &&
         row.sites[7].state_steps == expected.sites[7].state_steps;
}

/// All that was promised is there, and nothing that was never recorded.
void check(const Run& run, std::int64_t safe_steps, const std::string& where) {
  if (run.state != RunState::died) fail(where + "the state is " + std::string(name_of(run.state)));
  if (run.steps < safe_steps) {
    fail(where + std::to_string(safe_steps) + " steps were safe, " + std::to_string(run.steps) + " are read");
  }
  if (run.steps > 0 && (run.rows.empty() || run.rows.back().step + 1 != run.steps))
    fail(where + "the last row is lost");
  for (const StepRow& row : run.rows) {
    if (!is_whole(row)) fail(where + "row " + std::to_string(row.step) + " is another");
  }
  const auto transitions = static_cast<std::int64_t>(run.transitions.size());
  if (transitions < (safe_steps + kTransitionEvery - 1) / kTransitionEvery) fail(where + "a transition is lost");
  for (std::int64_t i = 0; i < transitions; ++i) {
    const Transition& event = run.transitions[static_cast<std::size_t>(i)];
    if (event.step != i * kTransitionEvery || event.value != static_cast<double>(event.step)) {
      fail(where + "a transition is another");
    }
  }
  if (static_cast<std::int64_t>(run.origins.size()) < (safe_steps + 400 - 18) / 400) fail(where + "an origin is lost");
  if (run.sites.size() != kSites && safe_steps > 0) fail(where + "sites are lost");
  if (safe_steps > 0 && run.setup.git_commit != hand_made_setup().git_commit) fail(where + "the setup is lost");
}

Run read(const std::string& path, const std::string& where) {
  try {
    return read_run(path);
  } catch (const std::exception& error) {
    fail(where + error.what());
    return {};
  }
}

int wait_for(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

/// As somebody who may not write there; root may write everywhere.
void check_read_only(const std::string& folder, Shared& shared, std::int64_t expected) {
  chmod(folder.c_str(), 0555);
  const pid_t child = fork();
  if (child == 0) {
    if (getuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(1);
    failures = 0;
    const Run run = read(folder + "/run.ffrun", "in a read-only folder: ");
    shared.steps_read = run.steps;
    _exit(failures == 0 ? 0 : 1);
  }
  if (const int status = wait_for(child); status != 0)
    fail("reading in a read-only folder ended with " + std::to_string(status));
  chmod(folder.c_str(), 0755);
  if (shared.steps_read != expected) {
    fail("in a read-only folder " + std::to_string(shared.steps_read) + " steps are read, in place " +
         std::to_string(expected));
  }
}

void await_death(pid_t child, Death death, const Shared& shared, std::mt19937& random) {
  constexpr int kSignals[] = {SIGKILL, SIGSEGV, SIGTERM};
  if (death <= Death::terminated) {
    while (!shared.recording) usleep(100);
    usleep(random() % 200'000);
    kill(child, kSignals[static_cast<int>(death)]);
  }
  wait_for(child);
}

struct Tally {
  int commits_missing = 0;  ///< deaths after which the main file alone said that commits are missing
  int torn = 0;             ///< of these: died in the midst of a checkpoint, which the main file alone says
  int unannounced = 0;      ///< died between a commit and the count of it, which the main file alone cannot say
  std::int64_t steps = 0;
};

void die_once(const std::string& folder, Death death, std::mt19937& random, Tally& tally) {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Shared& shared = *new (memory) Shared;
  const std::string path = folder + "/run.ffrun";
  const auto seed = random();
  const pid_t child = fork();
  if (child == 0) {
    std::mt19937 own(seed);
    record(path, shared, death, own);
  }
  await_death(child, death, shared, random);
  const std::string how = std::string("after ") + kDeaths[static_cast<int>(death)] + ", ";
  const std::int64_t safe = shared.safe_steps;

  // The copies first: reading in place may bring the -shm up to date.
  std::filesystem::create_directories(folder + "/alone");
  std::filesystem::copy_file(path, folder + "/alone/run.ffrun");
  std::filesystem::create_directories(folder + "/closed");
  copy_run_file(path, folder + "/closed/run.ffrun");

  const Run in_place = read(path, how + "in place: ");
  check(in_place, safe, how + "in place: ");
  if (!in_place.warnings.empty()) fail(how + "in place: " + in_place.warnings[0]);
  const Run alone = read(folder + "/alone/run.ffrun", how + "main file alone: ");
  const bool torn =
      !alone.warnings.empty() && alone.warnings.back().find("while it moved commits") != std::string::npos;
  if (!torn) check(alone, safe, how + "main file alone: ");
  tally.torn += torn ? 1 : 0;
  tally.unannounced += alone.steps < in_place.steps && alone.warnings.empty() ? 1 : 0;
  check_read_only(folder + "/closed", shared, in_place.steps);
  tally.commits_missing += alone.warnings.empty() ? 0 : 1;
  tally.steps += in_place.steps;
  munmap(memory, sizeof(Shared));
}

void flip(const std::string& folder, int flips, std::mt19937& random) {
  const std::string path = folder + "/flipped.ffrun";
  {
    RunFile file(folder + "/whole.ffrun");
    record_hand_made(file, 300, kSites);
  }
  const std::string whole = bytes_of(folder + "/whole.ffrun");
  int refused = 0;
  for (int i = 0; i < flips; ++i) {
    std::string damaged = whole;
    const std::size_t reach = i % 2 == 0 ? damaged.size() : 8 * 4096;  // half of them where the tables begin
    damaged[random() % reach] ^= static_cast<char>(1u << random() % 8);
    write_bytes(path, damaged);
    try {
      if (read_run(path).rows.size() > 300) fail("a flipped bit made rows");
    } catch (const Error&) {
      ++refused;
    }
  }
  std::printf("crash_test: %d files with a flipped bit, %d of them refused\n", flips, refused);
}

}  // namespace

int main(int count, char** arguments) {
  const auto argument = [&](int index, int otherwise) {
    return count > index ? std::atoi(arguments[index]) : otherwise;
  };
  const int deaths = argument(1, 20);
  std::mt19937 random(static_cast<unsigned>(argument(3, 1)));
  const TestFolder folder;
  chmod(folder.path().c_str(), 0755);
  Tally tally;
  for (int i = 0; i < deaths; ++i) {
    const std::string own = folder.file(std::to_string(i));
    std::filesystem::create_directory(own);
    die_once(own, static_cast<Death>(i % 5), random, tally);
    std::filesystem::remove_all(own);
  }
  std::printf(
      "crash_test: %d deaths, %lld steps recorded; after %d of them the main file alone lacked commits, %d of these in "
      "the midst of a checkpoint; %d more died before the last commit was counted\n",
      deaths, static_cast<long long>(tally.steps), tally.commits_missing, tally.torn, tally.unannounced);
  flip(folder.path().string(), argument(2, 5 * deaths), random);
  if (tally.unannounced > 1 + deaths / 50) fail("the main file alone does not say what is missing");
  if (tally.torn > deaths / 2) fail("more than half of the deaths were in the midst of a checkpoint");
  if (failures > 0) std::fprintf(stderr, "crash_test: %d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
