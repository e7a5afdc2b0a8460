// The writer's side of one run file: makes it, and puts batches into it. No thread and no lock of its own: whoever
// calls holds the SqliteGate.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <sys/types.h>

#include "firstfault/record/run.h"
#include "firstfault/record/storage/intake.h"
#include "firstfault/record/storage/schema.h"
#include "firstfault/record/storage/sqlite.h"

namespace firstfault::record {

struct WriterOptions {
  std::int64_t max_bytes = 0;
  std::string vfs;
};

class Writer {
 public:
  /// Makes the file, with its schema in the main file. Throws firstfault::Error.
  Writer(const std::string& path, const WriterOptions& options);
  ~Writer();

  /// One transaction: all of it or, where it throws SqliteError, nothing.
  void commit(const Batch& batch);
  /// Moves what is committed into the main file, as far as readers allow. Throws SqliteError.
  void checkpoint();
  /// Sets the state, checkpoints, and leaves a file without -wal where no reader holds it. Throws SqliteError.
  void finish(RunState state);

  /// The file is still where it was made.
  bool in_place() const;
  /// The pages that max_bytes allows are used up.
  bool is_at_limit() const;
  /// Shows other machines that the process lives: they see only when the file was written to.
  void touch() noexcept { write_to_head(kCommitsOffset, commits_); }
  /// Closes without touching the file: it is no longer ours.
  void abandon() noexcept;

 private:
  struct Statements;
  void open(bool exclusive);
  void create_schema();
  void make_room_in_wal();
  void write_to_head(int offset, std::int64_t value) noexcept;

  std::string path_;
  WriterOptions options_;
  Database database_;
  std::unique_ptr<Statements> statements_;
  std::int64_t commits_ = 0;
  std::int64_t wal_pages_ = 0;  ///< in the -wal after the last commit or checkpoint
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace firstfault::record
