// Trace: watches every op while it lives, and says which one made the first NaN or Inf.
#pragma once

#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "firstfault/live/intercept/place.h"
#include "firstfault/live/trace/tensor_names.h"
#include "firstfault/record/run.h"

namespace torch::nn {
class Module;
}

namespace firstfault {

struct ModuleNames;

struct TraceOptions {
  /// Keep the call stack of forward ops, so that a fault of their backward has a line. A forward fault has one anyway.
  bool stacks = true;
  /// Phases in which op outputs are looked at.
  bool forward = true;
  bool backward = true;
  bool optimizer = true;
  /// Stop looking after so many recorded ops; 0: never.
  std::int64_t max_ops = 0;
};

/// Observes all threads from construction (or start()) until stop() or the end of its life. One at a time in a process:
/// a second throws Error. Training is not changed: same numbers, same gradients, same RNG state. On an internal failure
/// it switches itself off, says so once on stderr, and the training goes on. With FIRSTFAULT=0 in the environment it
/// observes nothing and every answer is empty. Methods may be called from any thread.
class Trace {
 public:
  explicit Trace(TraceOptions options = {});
  /// For bindings: how places in the program are found, and whether to start at once.
  Trace(TraceOptions options, std::unique_ptr<intercept::Places> places, bool start_now);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// Begins anew: what was found before is forgotten. Error when this or another trace is running.
  void start();
  void stop();
  bool running() const noexcept;
  /// Between them nothing is looked at; what was found stays. Ops are still counted.
  void pause();
  void resume();

  /// Names the modules, parameters and buffers of `module`, as `name`, `name.layer`, …; needed for module paths, for
  /// checking gradients and parameters, and for counting steps of an optimizer that is not Python's torch.optim.
  /// The parameters are kept alive until unwatch() or the end of the trace's life. Error when `name` is taken already.
  void watch(const torch::nn::Module& module, const std::string& name = "model");
  void watch(ModuleNames names);
  /// Forgets all that is watched.
  void unwatch();

  /// True when the tensor holds a NaN or Inf now. Error (Kind::untracked) for a tensor that no observed op produced.
  bool has_issue(const at::Tensor& tensor);
  /// Where its bad values began; no culprits when it is finite. Error as has_issue().
  Diagnosis diagnose(const at::Tensor& tensor);
  /// Origins that reached a sink, in the order they happened; then swallowed values (warnings), then notes.
  std::vector<Origin> origins();
  /// origins(), and what could not be inspected.
  Run run();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Names the module that the following ops of this thread belong to, where no parameter tells: C++ modules have no
/// forward hooks. Nest them as calls nest. `path` is the full path, "model.encoder"; it must be watched to be shown.
class ModuleScope {
 public:
  explicit ModuleScope(const std::string& path);
  ~ModuleScope();
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;
};

std::ostream& operator<<(std::ostream& out, const Origin& origin);
std::ostream& operator<<(std::ostream& out, const Diagnosis& diagnosis);
std::ostream& operator<<(std::ostream& out, const Run& run);

}  // namespace firstfault
