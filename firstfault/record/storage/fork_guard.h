// What fork() must not break: SQLite's locks, which a thread may hold at that moment, and the parent's run files.
#pragma once

#include <cstdint>

namespace firstfault::record {

/// Held around every use of SQLite. fork() takes it, so that no thread is inside SQLite in the moment of the fork: it
/// waits for at most a second.
class SqliteGate {
 public:
  SqliteGate();
  ~SqliteGate();
  SqliteGate(const SqliteGate&) = delete;
  SqliteGate& operator=(const SqliteGate&) = delete;
};

/// Forks that led to this process, since the library was loaded; something made in another generation is the parent's.
std::uint64_t fork_generation() noexcept;

/// In a child that was forked while a thread was inside SQLite after all: SQLite must not be used in it.
bool sqlite_is_lost() noexcept;

/// Idempotent. The handlers stay for as long as the library is loaded.
void install_fork_handlers();

}  // namespace firstfault::record
