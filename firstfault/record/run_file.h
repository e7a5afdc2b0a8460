// Writes the run file of a run while it trains. docs/run-file.md has the format and what survives which crash.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "firstfault/record/retention.h"
#include "firstfault/record/run.h"

namespace firstfault::record {

struct RunFileOptions {
  /// Of the file and its -wal together: three quarters and a quarter of it. At least 16 MB.
  std::int64_t max_bytes = 256'000'000;
  std::chrono::milliseconds commit_every{500};       ///< transitions and origins are committed at once
  std::chrono::milliseconds checkpoint_every{5000};  ///< and checkpointed
  RetentionOptions retention;                        ///< see retention_of
  std::string vfs;                                   ///< name of a SQLite VFS; "" for the system's. For tests.
};

/// `options.retention` with as many health values as `options.max_bytes` has room for: for the History beside the file,
/// so that both keep the same.
RetentionOptions retention_of(const RunFileOptions& options);

/// The constructor throws firstfault::Error where no file can be made: folder missing or read-only, a file that is no
/// run file in the way, a run that another process is recording there. A finished or dead run of that name is moved to
/// PATH.previous. After that nothing throws, and nothing but a short lock blocks: a thread of its own writes.
/// Whatever goes wrong later (full disk, I/O error, file removed) is in problem(), and training goes on. After a fork
/// the child's calls, destructor included, do nothing. All methods may be called from any thread; the same goes for
/// RunFiles of different paths at once.
class RunFile {
 public:
  explicit RunFile(const std::string& path, const RunFileOptions& options = {});
  ~RunFile();  ///< close(RunState::complete), if it is still open
  RunFile(const RunFile&) = delete;
  RunFile& operator=(const RunFile&) = delete;

  // The same as History's; kept and left out by the same rules.
  void set_setup(Setup setup) noexcept;
  std::int32_t add_site(const Site& site) noexcept;
  void add_row(StepRow row) noexcept;
  void add_transition(const Transition& transition) noexcept;
  void merge_fact(const Fact& fact) noexcept;
  void add_origin(Origin origin) noexcept;
  void add_action(GuardAction action) noexcept;
  void add_warning(const std::string& text) noexcept;
  void set_ops(std::int64_t ops) noexcept;
  void set_uninspected(std::vector<Uninspected> uninspected) noexcept;

  /// Waits until all that was added before is committed and checkpointed; false: it is not within `limit`. For the
  /// moment of a fault, after which the process may not live.
  bool flush(std::chrono::milliseconds limit) noexcept;
  /// Writes what is left, the state, and moves all of it into the main file. Later calls do nothing. Waits for the
  /// disk; where the disk fails, it gives up after one more try.
  void close(RunState state) noexcept;

  /// The first thing that went wrong, a sentence for the user; "" while all is well.
  std::string problem() const noexcept;
  const std::string& path() const noexcept { return path_; }

 private:
  class Impl;
  Impl* impl() const noexcept;  ///< nullptr in a child after fork

  std::string path_;
  std::unique_ptr<Impl> impl_;
  std::uint64_t generation_ = 0;  ///< forks before it was made
};

}  // namespace firstfault::record
