// The op observer: RecordFunction callbacks on all threads, handed to one listener.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "firstfault/live/intercept/frame.h"

namespace firstfault::intercept {

/// Called from inside the training's own calls, on any thread. May throw: the observer then switches itself off,
/// keeps the first reason and lets the training go on.
class Listener {
 public:
  virtual ~Listener() = default;
  /// A dispatched op begins; `frame` is the top of the thread's stack and holds no inputs yet.
  virtual void on_op_start(Frame& frame, const at::RecordFunction& record) = 0;
  /// It ends; `frame` has been popped but can be read, `stack` holds those around it.
  virtual void on_op_end(Frame& frame, const at::RecordFunction& record) = 0;
  /// An autograd node begins (its frame is on the stack) or ends (popped).
  virtual void on_node_start(Frame& frame) = 0;
  virtual void on_node_end(Frame& frame) = 0;
  /// A record that is no dispatched op and no node ended, such as a Python autograd.Function's forward.
  virtual void on_other_end(Frame& frame, const at::RecordFunction& record) = 0;
  /// A range that torch.optim opens around Optimizer.step.
  virtual void on_optimizer(bool begins) = 0;
};

/// Guards everything the callbacks share. Never copy or drop a Tensor, nor run Python, while holding it: the reference
/// count of a tensor with a Python object takes the interpreter's lock when it goes between 1 and 2.
std::mutex& observer_mutex();

/// The open records of the calling thread.
FrameStack& frames() noexcept;

/// Registers the callbacks for `listener`. Throws Error when another listener is being served.
void start_observing(Listener& listener);
/// After it returns no callback of any thread uses the listener. Must not be called with observer_mutex() held.
void stop_observing() noexcept;

/// Why the observer switched itself off, "" while it works. Reset by start_observing.
std::string failure();
/// True in a process made by fork() after observation began: nothing is observed there.
bool is_forked_child() noexcept;
/// Changes whenever observation starts: per-thread state of an older one is void.
std::uint64_t generation() noexcept;

/// Where a test can make the observer fail. none: nowhere.
enum class FailPoint : int { none, op_start, op_end, node_start, measure, evidence, optimizer };
void set_fail_point(FailPoint point) noexcept;
[[noreturn]] void fail_here();
inline std::atomic<FailPoint> fail_point{FailPoint::none};
inline void fail_here_if(FailPoint point) {
  if (fail_point.load(std::memory_order_relaxed) == point) fail_here();
}

}  // namespace firstfault::intercept
