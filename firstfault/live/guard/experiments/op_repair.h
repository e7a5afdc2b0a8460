// Makes what an op reads ordinary, or what it gives finite, while a step runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/record_function.h>

namespace firstfault::guard {

struct OpRepair {
  enum class What : std::uint8_t {
    operand,            ///< in place: other readers of its memory see it too
    result,             ///< in place, before anybody reads it
    log_probabilities,  ///< of every nll_loss: its scores, made log-probabilities; `number` is not used
  };
  std::int64_t number = 0;  ///< Origin::op_number of a replay of the same step
  What what = What::result;
};

/// Between start() and stop(), which observes no step of its own: at most one of them in a process. Version counters
/// stay as they are, and autograd sees nothing of it.
class OpRepairs {
 public:
  explicit OpRepairs(std::vector<OpRepair> repairs) : repairs_(std::move(repairs)) {}
  ~OpRepairs() { stop(); }
  OpRepairs(const OpRepairs&) = delete;
  OpRepairs& operator=(const OpRepairs&) = delete;

  /// Before the observer of the replay starts: callbacks run in the order in which they were added, and the observer
  /// must see what was repaired.
  void start();
  void stop();
  /// Values that were changed.
  std::int64_t changed() const noexcept { return changed_.load(); }

 private:
  struct Here;
  static std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& record);
  static void on_end(const at::RecordFunction& record, at::ObserverContext* context);

  std::vector<OpRepair> repairs_;
  std::atomic<std::int64_t> ops_{0}, changed_{0};
  at::CallbackHandle handle_ = 0;
};

/// Whether the op has a domain of which its operands may be outside or at the edge.
bool has_domain(const std::string& op);

/// In place: the operands of the op moved to ordinary values of its domain. Gives how many values were changed.
std::int64_t make_ordinary(const std::string& op, c10::ArrayRef<const c10::IValue> arguments);
/// In place: NaN becomes 0, Inf a large number.
std::int64_t make_finite(const at::Tensor& tensor);

}  // namespace firstfault::guard
