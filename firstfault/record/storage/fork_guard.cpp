#include "firstfault/record/storage/fork_guard.h"

#include <atomic>
#include <ctime>

#include <pthread.h>

namespace firstfault::record {
namespace {

pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
std::atomic<std::uint64_t> generation{0};
std::atomic<bool> lost{false};
thread_local bool held_for_fork = false;

void before_fork() {
  timespec until{};
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 1;
  held_for_fork = pthread_mutex_timedlock(&gate, &until) == 0;
}

void after_fork_in_parent() {
  if (held_for_fork) pthread_mutex_unlock(&gate);
  held_for_fork = false;
}

void after_fork_in_child() {
  generation.fetch_add(1, std::memory_order_relaxed);
  if (held_for_fork) {
    pthread_mutex_unlock(&gate);
  } else {
    // Its owner does not exist here.
    gate = PTHREAD_MUTEX_INITIALIZER;
    lost.store(true, std::memory_order_relaxed);
  }
  held_for_fork = false;
}

}  // namespace

SqliteGate::SqliteGate() { pthread_mutex_lock(&gate); }
SqliteGate::~SqliteGate() { pthread_mutex_unlock(&gate); }

std::uint64_t fork_generation() noexcept { return generation.load(std::memory_order_relaxed); }
bool sqlite_is_lost() noexcept { return lost.load(std::memory_order_relaxed); }

void install_fork_handlers() {
  [[maybe_unused]] static const int installed = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

}  // namespace firstfault::record
