// Where a run file is to be made: what may be in the way there.
#pragma once

#include <string>

#include "firstfault/record/storage/process.h"
#include "firstfault/record/storage/sqlite.h"

namespace firstfault::record {

/// While it lives, no other process makes a run file in the folder of `path`. Where folders cannot be locked, or one
/// stays locked for two seconds, it does nothing.
class FolderLock {
 public:
  explicit FolderLock(const std::string& path);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int folder_ = -1;
};

/// Throws firstfault::Error where `path` is not free for a new run file: no folder, a file that is no run file, a run
/// that is still being recorded. A run that is over is moved to PATH.previous.
void prepare_place(const std::string& path);

/// The file with its -wal and -shm; what is not there is fine.
void remove_run_file(const std::string& path);

/// The process that the run's row names. Throws SqliteError.
ProcessIdentity recording_process(const Database& database);

/// For a run that says it is being recorded: whether it still is. Of a process that cannot be looked up (another
/// machine's) by when the file or its -wal was last written to: the writer writes at least once a minute.
bool is_being_recorded(const ProcessIdentity& process, const std::string& path);

}  // namespace firstfault::record
