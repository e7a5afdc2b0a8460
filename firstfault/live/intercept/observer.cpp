// Registration, the per-thread stacks, and the wall between a fault of ours and the training.
#include "firstfault/live/intercept/observer.h"

#include <pthread.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <thread>
#include <utility>

#include "firstfault/base/error.h"
#include "firstfault/live/intercept/per_thread.h"

namespace firstfault::intercept {
namespace {

// Constructed once and never destroyed: a callback may run while the process is torn down.
struct Shared {
  std::mutex mutex;
  std::atomic<Listener*> listener{nullptr};
  std::atomic<int> inside{0};  // threads between reading `listener` and leaving the callback
  std::atomic<std::uint64_t> generation{0};
  std::mutex failure_mutex;
  std::string failure;
  bool forked = false;
  at::CallbackHandle handles[3] = {};
};

Shared& shared() {
  alignas(Shared) static unsigned char memory[sizeof(Shared)];
  static Shared* const instance = new (memory) Shared;
  return *instance;
}

struct ThreadState {
  FrameStack frames;
  std::uint64_t generation = 0;
  int inside = 0;
};

ThreadState& thread_state() { return per_thread<ThreadState>(); }

void switch_off(const char* reason) noexcept {
  Shared& s = shared();
  s.listener.store(nullptr, std::memory_order_seq_cst);
  try {
    const std::lock_guard lock(s.failure_mutex);
    if (!s.failure.empty()) return;
    s.failure = reason;
    std::fprintf(stderr, "firstfault: switched itself off after an internal failure (%s); the training goes on\n",
                 reason);
  } catch (...) {
  }
}

// Holds the listener for the length of a callback. Outermost callbacks only: they do not nest, since the listener
// runs under DisableRecordFunctionGuard wherever it calls ops.
class Use {
 public:
  Use() {
    Shared& s = shared();
    s.inside.fetch_add(1, std::memory_order_seq_cst);
    ++thread_state().inside;
    listener_ = s.listener.load(std::memory_order_seq_cst);
    if (!listener_) return;
    ThreadState& state = thread_state();
    const auto now = s.generation.load(std::memory_order_relaxed);
    if (state.generation != now) {
      state.frames.clear();
      state.generation = now;
    }
  }
  ~Use() {
    --thread_state().inside;
    shared().inside.fetch_sub(1, std::memory_order_seq_cst);
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  explicit operator bool() const noexcept { return listener_ != nullptr; }
  Listener* operator->() const noexcept { return listener_; }

 private:
  Listener* listener_;
};

template <class Body>
void guarded(Body&& body) noexcept {
  const Use use;
  if (!use) return;
  try {
    body(use);
  } catch (const std::exception& error) {
    switch_off(error.what());
  } catch (...) {
    switch_off("unknown exception");
  }
}

constexpr char kEngine[] = "autograd::engine::evaluate_function";

// A Python autograd.Function's record has its class's name and the number of the node made right after it. Other
// records without traits are not kept: an asynchronous one may end on another thread.
bool is_custom_function(const at::RecordFunction& record) {
  return record.seqNr() >= 0 && !std::strstr(record.name(), "::");
}

std::unique_ptr<at::ObserverContext> op_start(const at::RecordFunction& record) {
  guarded([&](const Use& use) {
    const OpTraits& traits = traits_of(record);
    if (traits.kind != OpKind::other) {
      use->on_op_start(frames().push(record, traits, Frame::Type::op), record);
    } else if (std::strncmp(record.name(), kEngine, sizeof(kEngine) - 1) == 0) {
      frames().push(record, traits, Frame::Type::engine);
    } else if (is_custom_function(record)) {
      frames().push(record, traits, Frame::Type::op);
    }
  });
  return nullptr;
}

void op_end(const at::RecordFunction& record, at::ObserverContext*) {
  // Also when nobody listens any more: an op that was open when observation ended holds its inputs.
  Frame* frame = frames().pop(record);
  if (!frame) return;
  // Dropping a tensor can take the interpreter's lock: after the listener has let go of every other.
  struct Release {
    Frame& frame;
    ~Release() {
      frame.inputs.clear();
      frame.scalars.clear();
    }
  } const release{*frame};
  // Opened under an observation that has ended: its numbers and nodes mean nothing to the next.
  if (thread_state().generation != shared().generation.load(std::memory_order_relaxed)) return;
  guarded([&](const Use& use) {
    if (frame->type == Frame::Type::engine) return;
    if (frame->traits->kind == OpKind::other) {
      use->on_other_end(*frame, record);
    } else {
      use->on_op_end(*frame, record);
    }
  });
}

std::unique_ptr<at::ObserverContext> node_start(const at::RecordFunction& record) {
  guarded([&](const Use& use) {
    Frame& frame = frames().push(record, no_traits(), Frame::Type::node);
    frame.sequence = record.seqNr();
    frame.forward_thread = record.forwardThreadId();
    use->on_node_start(frame);
  });
  return nullptr;
}

void node_end(const at::RecordFunction& record, at::ObserverContext*) {
  guarded([&](const Use& use) {
    Frame* frame = frames().pop(record);
    if (!frame) return;
    // What the engine does to the node's results after it ended is named after it.
    if (const int depth = frames().depth(); depth > 0 && frames()[depth - 1].type == Frame::Type::engine) {
      frames()[depth - 1].sequence = frame->sequence;
      frames()[depth - 1].forward_thread = frame->forward_thread;
    }
    use->on_node_end(*frame);
  });
}

bool is_optimizer_step(const at::RecordFunction& record) {
  return std::strncmp(record.name(), "Optimizer.step#", 15) == 0;
}

std::unique_ptr<at::ObserverContext> range_start(const at::RecordFunction& record) {
  if (is_optimizer_step(record)) guarded([](const Use& use) { use->on_optimizer(true); });
  return nullptr;
}

void range_end(const at::RecordFunction& record, at::ObserverContext*) {
  if (is_optimizer_step(record)) guarded([](const Use& use) { use->on_optimizer(false); });
}

// Locks that another thread held at fork() would stay locked for ever.
void after_fork_in_child() {
  Shared& s = shared();
  s.listener.store(nullptr);
  s.inside.store(0);
  s.forked = true;
  new (&s.mutex) std::mutex;
  new (&s.failure_mutex) std::mutex;
}

}  // namespace

std::mutex& observer_mutex() { return shared().mutex; }
FrameStack& frames() noexcept { return thread_state().frames; }

void start_observing(Listener& listener) {
  Shared& s = shared();
  static const int registered = pthread_atfork(nullptr, nullptr, after_fork_in_child);
  (void)registered;
  s.generation.fetch_add(1);
  {
    const std::lock_guard lock(s.failure_mutex);
    s.failure.clear();
  }
  s.forked = false;
  for (auto& handle : s.handles) {  // a forked child inherits its parent's
    if (handle) at::removeCallback(std::exchange(handle, {}));
  }
  s.listener.store(&listener);
  using Callback = at::RecordFunctionCallback;
  s.handles[0] = at::addGlobalCallback(
      Callback(op_start, op_end).needsInputs(true).needsOutputs(true).scopes({at::RecordScope::FUNCTION}));
  // Without inputs: keeping a node's inputs would make AccumulateGrad copy gradients instead of stealing them.
  s.handles[1] = at::addGlobalCallback(Callback(node_start, node_end).scopes({at::RecordScope::BACKWARD_FUNCTION}));
  s.handles[2] = at::addGlobalCallback(Callback(range_start, range_end).scopes({at::RecordScope::USER_SCOPE}));
}

void stop_observing() noexcept {
  Shared& s = shared();
  for (auto& handle : s.handles) {
    if (handle) at::removeCallback(handle);
    handle = {};
  }
  s.listener.store(nullptr);
  const int own = thread_state().inside;  // not 0 when a destructor that runs inside a callback stops the trace
  while (s.inside.load() > own) std::this_thread::yield();
}

std::string failure() {
  const std::lock_guard lock(shared().failure_mutex);
  return shared().failure;
}

bool is_forked_child() noexcept { return shared().forked; }
std::uint64_t generation() noexcept { return shared().generation.load(std::memory_order_relaxed); }

void set_fail_point(FailPoint point) noexcept { fail_point.store(point); }
void fail_here() { throw Error("a test made the observer fail here"); }

}  // namespace firstfault::intercept
