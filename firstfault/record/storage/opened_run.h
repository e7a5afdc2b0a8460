// Opens a run file for reading, in place or as a copy, and says in one sentence why not.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "firstfault/record/storage/sqlite.h"

namespace firstfault::record {

/// A folder of its own under $TMPDIR or /tmp, removed with what is in it.
class TemporaryFolder {
 public:
  TemporaryFolder() = default;
  static TemporaryFolder make();  ///< path() is "" where none can be made
  ~TemporaryFolder();
  TemporaryFolder(TemporaryFolder&& other) noexcept { path_.swap(other.path_); }
  TemporaryFolder& operator=(TemporaryFolder&& other) noexcept {
    path_.swap(other.path_);
    return *this;
  }
  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

/// The main file and its -wal as they stood at one moment, although a writer may be at work. False: not possible.
bool copy_run_file(const std::string& path, const std::string& target);

struct OpenedRun {
  TemporaryFolder folder;              ///< of the copy; removed after the database is closed
  std::unique_ptr<std::int64_t> work;  ///< how much SQLite has done; it gives up beyond a limit
  Database database;                   ///< within a read transaction
  std::int64_t commits_begun = 0;      ///< count of commits that stands outside of transactions: read first
  bool has_actions = false;            ///< files of version 1 have no such table
  bool is_torn = false;                ///< the -wal is missing, and the main file is a mixture of before and after
};

/// Throws firstfault::Error. Holds no lock that a writer would wait for.
OpenedRun open_run(const std::string& path);

}  // namespace firstfault::record
