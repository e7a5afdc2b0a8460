// What a guard does about a faulty step: limits, and the way from one measure to the next. No tensors, no clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace firstfault {

/// What the user asks for.
enum class OnFault : std::uint8_t {
  raise,     ///< stop the training, with nothing of the faulty step written
  skip,      ///< leave the step out
  rollback,  ///< go back to a snapshot
  warn,      ///< say so; the optimizer makes its step
};

namespace guard {

enum class Action : std::uint8_t { pass, skip, rollback, warn, stop };

constexpr std::string_view name_of(Action action) noexcept {
  constexpr std::string_view names[] = {"pass", "skip", "rollback", "warn", "stop"};
  return names[static_cast<int>(action)];
}

struct PolicyOptions {
  OnFault on_fault = OnFault::raise;
  std::int64_t max_consecutive_skips = 10;
  OnFault after_skips = OnFault::raise;  ///< raise or rollback: what follows the last of them
  std::int64_t max_rollbacks = 3;        ///< without making good the steps that the first of them lost
};

/// One faulty step, as far as the policy asks.
struct Situation {
  bool written = false;         ///< the optimizer has written, so that the step can no longer be left out
  bool can_undo = false;        ///< … but there is a copy from before it
  bool has_snapshot = false;    ///< something to roll back to
  std::int64_t would_lose = 0;  ///< steps from the snapshot to now
};

/// What is done about it.
struct Measure {
  Action action = Action::stop;
  bool goes_back = false;        ///< to the snapshot, with all that belongs to the run
  std::string_view undone = "";  ///< what takes back what was written: "copy", "snapshot", or "" for nothing
  bool operator==(const Measure&) const = default;
};

/// Decides step by step. Every sequence of faulty steps alone ends in `stop`, but with `warn`. Not thread-safe.
class Policy {
 public:
  explicit Policy(PolicyOptions options = {}) : options_(options) {}

  void healthy();
  Measure faulty(const Situation& situation);

  /// Of `snapshots` held, the index of the one to roll back to: the newest; where that was gone back to already and led
  /// to the same place, the one before it.
  std::optional<std::size_t> snapshot_to_use(std::size_t snapshots) const;
  /// What a sentence about a stop ends with: ", after 10 steps in a row were skipped", or "".
  std::string why_stopped(const Situation& situation) const;

  std::int64_t skips_in_a_row() const noexcept { return skips_; }
  std::int64_t rollbacks() const noexcept { return rollbacks_; }  ///< not made good yet

 private:
  Action decide(const Situation& situation);
  Action skip(const Situation& situation);
  Action roll_back(const Situation& situation);

  PolicyOptions options_;
  std::int64_t skips_ = 0;
  std::int64_t rollbacks_ = 0;
  std::int64_t to_make_good_ = 0;
};

}  // namespace guard
}  // namespace firstfault
