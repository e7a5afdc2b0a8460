// What a guard does about a faulty step: limits, and the way from one measure to the next. No tensors, no clock.
#pragma once

#include <cstdint>
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

/// Decides step by step. Every sequence of faulty steps alone ends in `stop`, but with `warn`. Not thread-safe.
class Policy {
 public:
  explicit Policy(PolicyOptions options = {}) : options_(options) {}

  void healthy();
  Action faulty(const Situation& situation);

  std::int64_t skips_in_a_row() const noexcept { return skips_; }
  std::int64_t rollbacks() const noexcept { return rollbacks_; }  ///< not made good yet

 private:
  Action skip(const Situation& situation);
  Action roll_back(const Situation& situation);

  PolicyOptions options_;
  std::int64_t skips_ = 0;
  std::int64_t rollbacks_ = 0;
  std::int64_t to_make_good_ = 0;
};

}  // namespace guard
}  // namespace firstfault
