// RunFile takes in on the caller's thread, under a lock, and writes on a thread of its own.
#include "firstfault/record/run_file.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "firstfault/base/error.h"
#include "firstfault/base/names.h"
#include "firstfault/record/storage/fork_guard.h"
#include "firstfault/record/storage/intake.h"
#include "firstfault/record/storage/writer.h"

namespace firstfault::record {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kLeastBytes = 16'000'000;
constexpr std::chrono::milliseconds kBetweenCommits{20};  ///< so that a site that flickers cannot keep a core busy
constexpr std::chrono::seconds kBetweenRetries{5};
constexpr std::chrono::seconds kBetweenTouches{60};
constexpr std::int64_t kHealthBytes = 64;

/// What passes: a full disk, an I/O error, a reader's lock. All else, such as a damaged file, stays.
bool may_pass(const SqliteError& error) {
  switch (error.code()) {
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_NOMEM:
    case SQLITE_PROTOCOL:
    case SQLITE_CANTOPEN: return true;
    default: return false;
  }
}

/// So that the program's signal handlers never run on the writer's thread.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

RunFileOptions checked(RunFileOptions options) {
  if (options.max_bytes < kLeastBytes) {
    throw Error("RunFileOptions::max_bytes is " + std::to_string(options.max_bytes) + "; it must be at least " +
                    std::to_string(kLeastBytes) + " (16 MB).",
                Error::Kind::bad_value);
  }
  options.retention = retention_of(options);
  return options;
}

std::string absolute(const std::string& path) {
  if (path.empty()) throw Error("The run file has no name. Give a path such as 'run.ffrun'.", Error::Kind::bad_value);
  return std::filesystem::absolute(path).string();
}

}  // namespace

RetentionOptions retention_of(const RunFileOptions& options) {
  RetentionOptions retention = options.retention;
  retention.health_values = std::min(retention.health_values, options.max_bytes / 4 / kHealthBytes);
  return retention;
}

class RunFile::Impl {
 public:
  Impl(const std::string& path, const RunFileOptions& options);

  /// `change` on the intake; whether the writer is to act on it at once.
  template <class Change>
  void take_in(bool at_once, const Change& change) noexcept;
  bool flush(std::chrono::milliseconds limit) noexcept;
  void close(RunState state) noexcept;
  std::string problem() noexcept;

  Impl* next_abandoned = nullptr;  ///< after a fork

 private:
  enum class Urgency : std::uint8_t { none, soon, now };

  void run() noexcept;
  bool wait_for_work(std::unique_lock<std::mutex>& lock);
  void write_once();
  void write_batch(bool last);
  void retry_later(const SqliteError& error);
  void stop(const std::string& why);
  void finish();
  void note_problem(const std::string& text);

  const std::string path_;
  const RunFileOptions options_;

  std::mutex mutex_;  ///< the members of this block
  std::condition_variable work_, done_;
  Intake intake_;
  Urgency urgency_ = Urgency::none;
  std::optional<RunState> closing_;
  bool stopped_ = false;    ///< nothing is written any more
  bool failed_ = false;     ///< the last try to write did not succeed
  std::uint64_t safe_ = 0;  ///< sequence up to which all is committed and checkpointed
  std::string problem_;

  // The writer's thread alone.
  std::optional<Writer> writer_;
  std::optional<Batch> batch_;  ///< taken, and not yet committed
  std::uint64_t committed_ = 0;
  bool checkpoint_due_ = false;
  Clock::time_point last_commit_ = Clock::now(), last_checkpoint_ = Clock::now();

  std::mutex closing_mutex_;
  std::thread thread_;
};

RunFile::Impl::Impl(const std::string& path, const RunFileOptions& options)
    : path_(path), options_(options), intake_(options.retention) {
  {
    const SqliteGate gate;
    writer_.emplace(path, WriterOptions{options.max_bytes, options.vfs});
  }
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { run(); });
}

template <class Change>
void RunFile::Impl::take_in(bool at_once, const Change& change) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (stopped_ || closing_) return;
    change(intake_);
    if (!at_once || urgency_ != Urgency::none) return;
    urgency_ = Urgency::soon;
    work_.notify_one();
  } catch (...) {
    // No memory for it: the training may still go on, so this entry is left out.
  }
}

bool RunFile::Impl::flush(std::chrono::milliseconds limit) noexcept {
  std::unique_lock lock(mutex_);
  const std::uint64_t wanted = intake_.sequence();
  if (stopped_) return false;
  if (safe_ >= wanted) return true;
  urgency_ = Urgency::now;
  failed_ = false;
  work_.notify_one();
  done_.wait_for(lock, limit, [&] { return stopped_ || failed_ || safe_ >= wanted; });
  return safe_ >= wanted;
}

void RunFile::Impl::close(RunState state) noexcept {
  const std::lock_guard once(closing_mutex_);
  {
    const std::lock_guard lock(mutex_);
    if (!closing_) closing_ = state;
    work_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

std::string RunFile::Impl::problem() noexcept {
  const std::lock_guard lock(mutex_);
  return problem_;
}

void RunFile::Impl::run() noexcept {
  try {
    for (bool more = true; more;) {
      {
        std::unique_lock lock(mutex_);
        more = wait_for_work(lock);
      }
      if (more) write_once();
    }
    finish();
  } catch (const std::exception& error) {
    stop(error.what());
  }
}

/// False: the end has come.
bool RunFile::Impl::wait_for_work(std::unique_lock<std::mutex>& lock) {
  const auto now_or_closing = [&] { return stopped_ || closing_ || urgency_ == Urgency::now; };
  if (batch_ || failed_) {
    work_.wait_for(lock, kBetweenRetries, now_or_closing);
  } else {
    work_.wait_until(lock, last_commit_ + kBetweenCommits, now_or_closing);
    work_.wait_until(lock, std::max(last_commit_ + options_.commit_every, last_commit_ + kBetweenCommits),
                     [&] { return now_or_closing() || urgency_ != Urgency::none; });
  }
  return !stopped_ && !closing_;
}

void RunFile::Impl::write_once() {
  {
    const std::lock_guard lock(mutex_);
    checkpoint_due_ =
        checkpoint_due_ || urgency_ != Urgency::none || Clock::now() - last_checkpoint_ >= options_.checkpoint_every;
    urgency_ = Urgency::none;
    failed_ = false;
    if (!batch_ && intake_.sequence() != committed_) batch_ = intake_.take(checkpoint_due_);
  }
  const SqliteGate gate;
  try {
    write_batch(false);
  } catch (const SqliteError& error) {
    if (may_pass(error)) {
      retry_later(error);
    } else {
      stop(error.what());
    }
  }
}

void RunFile::Impl::write_batch(bool last) {
  const auto now = Clock::now();
  if (!batch_ && !last && committed_ == safe_) {
    if (now - last_commit_ > kBetweenTouches) writer_->touch();
    if (now - last_commit_ > kBetweenTouches) last_commit_ = now;
    return;
  }
  if (!writer_->in_place()) {
    stop("it was removed or replaced while it was written");
    return;
  }
  last_commit_ = now;
  if (batch_) {
    writer_->commit(*batch_);
    committed_ = batch_->sequence;
    batch_.reset();
  }
  if (!checkpoint_due_ && !last) return;
  writer_->checkpoint();
  checkpoint_due_ = false;
  last_checkpoint_ = Clock::now();
  const std::lock_guard lock(mutex_);
  safe_ = committed_;
  done_.notify_all();
}

void RunFile::Impl::retry_later(const SqliteError& error) {
  last_commit_ = Clock::now();
  const bool limit = error.code() == SQLITE_FULL && writer_->is_at_limit();
  const std::string why = limit ? "its limit of " + std::to_string(options_.max_bytes / 1'000'000) + " MB is reached"
                                : std::string(error.what());
  const std::lock_guard lock(mutex_);
  failed_ = true;
  done_.notify_all();
  if (error.code() == SQLITE_BUSY) return;  // readers let go
  note_problem("The run file '" + printable(path_) + "' cannot be written to for now (" + why +
               "). Training goes on; recording goes on as soon as it can.");
}

void RunFile::Impl::stop(const std::string& why) {
  if (writer_) writer_->abandon();
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  note_problem("The run file '" + printable(path_) + "' is no longer written (" + why + "). Training goes on.");
  done_.notify_all();
}

void RunFile::Impl::note_problem(const std::string& text) {
  if (!problem_.empty()) return;
  problem_ = text;
  intake_.add_warning(text);  // for readers of what is written after all
}

void RunFile::Impl::finish() {
  RunState state = RunState::complete;
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    state = *closing_;
  }
  const SqliteGate gate;
  try {
    for (int part = 0; part < 2 && !stopped_; ++part) {  // what a failed commit left, and what has come since
      if (!batch_) {
        const std::lock_guard lock(mutex_);
        batch_ = intake_.take(true);
      }
      write_batch(true);
      if (intake_.sequence() == committed_) break;
    }
    if (!stopped_) writer_->finish(state);
  } catch (const SqliteError& error) {
    writer_->abandon();
    const std::lock_guard lock(mutex_);
    note_problem("The end of the run file '" + printable(path_) + "' could not be written (" + error.what() + ").");
  }
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  done_.notify_all();
}

RunFile::RunFile(const std::string& path, const RunFileOptions& options) : path_(absolute(path)) {
  install_fork_handlers();
  if (sqlite_is_lost()) {
    throw Error("The run file '" + printable(path) +
                "' cannot be made: this process was forked while its parent was writing one. Start it with the spawn "
                "or forkserver method.");
  }
  generation_ = fork_generation();
  impl_ = std::make_unique<Impl>(path_, checked(options));
}

RunFile::~RunFile() {
  if (Impl* mine = impl()) {
    mine->close(RunState::complete);
    return;
  }
  // The parent's: its thread, locks and connection do not exist here. Kept reachable, so that no leak is reported.
  static std::atomic<Impl*> abandoned{nullptr};
  Impl* parents = impl_.release();
  parents->next_abandoned = abandoned.exchange(parents);
}

RunFile::Impl* RunFile::impl() const noexcept { return generation_ == fork_generation() ? impl_.get() : nullptr; }

void RunFile::set_setup(Setup setup) noexcept {
  if (Impl* mine = impl()) mine->take_in(true, [&](Intake& intake) { intake.set_setup(std::move(setup)); });
}

std::int32_t RunFile::add_site(const Site& site) noexcept {
  std::int32_t index = -1;
  if (Impl* mine = impl()) mine->take_in(false, [&](Intake& intake) { index = intake.add_site(site); });
  return index;
}

void RunFile::add_row(StepRow row) noexcept {
  if (Impl* mine = impl()) mine->take_in(false, [&](Intake& intake) { intake.add_row(std::move(row)); });
}

void RunFile::add_transition(const Transition& transition) noexcept {
  if (Impl* mine = impl()) mine->take_in(true, [&](Intake& intake) { intake.add_transition(transition); });
}

void RunFile::merge_fact(const Fact& fact) noexcept {
  if (Impl* mine = impl()) mine->take_in(false, [&](Intake& intake) { intake.merge_fact(fact); });
}

void RunFile::add_origin(Origin origin) noexcept {
  if (Impl* mine = impl()) mine->take_in(true, [&](Intake& intake) { intake.add_origin(std::move(origin)); });
}

void RunFile::add_action(GuardAction action) noexcept {
  const bool at_once = action.kind != GuardAction::Kind::clip;
  if (Impl* mine = impl()) mine->take_in(at_once, [&](Intake& intake) { intake.add_action(std::move(action)); });
}

void RunFile::add_warning(const std::string& text) noexcept {
  if (Impl* mine = impl()) mine->take_in(false, [&](Intake& intake) { intake.add_warning(text); });
}

void RunFile::set_ops(std::int64_t ops) noexcept {
  if (Impl* mine = impl()) mine->take_in(false, [&](Intake& intake) { intake.set_ops(ops); });
}

void RunFile::set_uninspected(std::vector<Uninspected> uninspected) noexcept {
  if (Impl* mine = impl()) {
    mine->take_in(false, [&](Intake& intake) { intake.set_uninspected(std::move(uninspected)); });
  }
}

bool RunFile::flush(std::chrono::milliseconds limit) noexcept {
  Impl* mine = impl();
  return mine != nullptr && mine->flush(limit);
}

void RunFile::close(RunState state) noexcept {
  if (Impl* mine = impl()) mine->close(state);
}

std::string RunFile::problem() const noexcept {
  Impl* mine = impl();
  return mine != nullptr ? mine->problem() : std::string();
}

}  // namespace firstfault::record
