// Watch: the health of every step of a run, and why it failed.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "firstfault/events/experiment.h"
#include "firstfault/events/hypothesis.h"
#include "firstfault/events/setup.h"
#include "firstfault/events/transition.h"
#include "firstfault/live/intercept/place.h"
#include "firstfault/record/run.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace firstfault {

struct ModuleNames;
struct ClipRecord;
namespace watch {
struct GroupNumbers;
struct HeldTensor;
}  // namespace watch

struct WatchOptions {
  /// How much is observed. "gradients": gradients, parameters and updates alone. "modules": every op in the first
  /// steps, then in one step of eight. "ops": every op, so that a fault has its exact origin. "": ops.
  std::string level;
  double threshold_vanishing = 1e-6;  ///< L2 norm of a gradient; see DetectorOptions
  double threshold_exploding = 1e3;
  /// Where the run is recorded; "": in memory only. Where it cannot be made, a warning says so and the run goes on.
  std::string run_file;
};

/// Observes all threads from construction (or start()) until close() or the end of its life. Not beside a Trace or
/// another Watch: the second throws Error; the level "gradients" observes nothing and may run beside both. Training is
/// not changed: same numbers, same random state. On an internal failure it switches itself off, says so once on stderr,
/// and the training goes on. With FIRSTFAULT=0 in the environment it does nothing and every answer is empty. After
/// fork() the child watches nothing. Methods may be called from any thread.
class Watch {
 public:
  explicit Watch(WatchOptions options = {});
  /// Watches the model as "model", and its optimizer.
  Watch(const torch::nn::Module& model, torch::optim::Optimizer& optimizer, WatchOptions options = {});
  /// For bindings: how places in the program are found, and whether to start at once.
  Watch(WatchOptions options, std::unique_ptr<intercept::Places> places, bool start_now);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  void start();
  /// Ends the run: what is not written yet is, and the run file says how it ended. The destructor closes as complete.
  void close(RunState state = RunState::complete);
  bool running() const noexcept;

  /// Names the modules, parameters and buffers of `module`. They are kept alive until the end of the watch's life.
  /// Error when `name` is taken already.
  void watch(const torch::nn::Module& module, const std::string& name = "model");
  void watch(ModuleNames names);
  /// Tells which tensors an optimizer holds; gives its number, for before_step() and after_step().
  int watch(torch::optim::Optimizer& optimizer);
  int hold(const std::vector<at::Tensor>& tensors, OptimizerInfo info);
  /// Parameters that joined an optimizer later.
  void hold_more(int optimizer, const std::vector<at::Tensor>& tensors);
  /// For bindings: the command line as the program knows it ({}: as the system does), and versions to add.
  void describe(std::vector<std::string> command, const std::map<std::string, std::string>& versions);

  /// Measures, lets the optimizer make its step, measures again, and ends the step. `loss`: a tensor of one element.
  void step(torch::optim::Optimizer& optimizer, const at::Tensor& loss);
  /// The same, with `make_step` in place of the optimizer's own.
  void step(torch::optim::Optimizer& optimizer, const at::Tensor& loss, const std::function<void()>& make_step);
  /// The same around a step that is made elsewhere. `ranged`: as torch.optim in Python, the optimizer opens a range.
  void before_step(int optimizer, const std::vector<watch::GroupNumbers>& groups, bool ranged);
  void after_step(int optimizer, const std::vector<watch::GroupNumbers>& groups, bool ranged);
  /// Before after_step(), where the optimizer undoes the loss scale by itself, as fused ones under a GradScaler do: the
  /// scale, and whether it found Inf in the gradients and passes the step over.
  void scaled(double scale, bool passed_over);
  /// The loss of the step, where it is not what backward() is called on.
  void loss(double value);
  /// A number of the program's own, kept with the step.
  void log(const std::string& name, double value);

  // For a guard.

  /// Steps that have ended: the number of the one that is being made.
  std::int64_t steps();
  /// The step that is being made is refused: nothing of it is written.
  void refused();
  /// Parameters and the optimizers' state are those of an older step now.
  void rolled_back();
  /// What a guard found out by running a step again: origins, where the run itself has none of that step, and
  /// experiments. `origins` are stamped with the step.
  void learned(std::int64_t step, std::vector<Origin> origins, const std::vector<Experiment>& experiments);
  /// The mean of what backward() was called on since the last step, where that is known.
  std::optional<double> pending_loss();
  /// Known without looking, as every op of the optimizer's last step was seen: it wrote the tensor, which is finite.
  /// false: not known.
  bool wrote_finite(const at::Tensor& tensor) const;
  /// Writes down what a guard did, and gives it. `clip`: of each step whose gradients it measured; nullopt where they
  /// were left as they were. The step is the one that is being made.
  void acted(const GuardAction& action);
  std::optional<GuardAction> measured(const ClipRecord& clip);
  /// From here to end_aside() all is seen by a trace of its own, with the names of this watch, and is no part of the
  /// run. Between steps, on the thread that trains. Error where a Trace or another Watch observes. `died`: what was
  /// run ended by an exception.
  void begin_aside();
  Run end_aside(bool died = false);
  /// From here to resume() nothing is seen, and another Watch or a Trace may run. Between steps, on the thread that
  /// trains.
  void pause();
  void resume();
  /// Both around `body`.
  Run aside(const std::function<void()>& body);

  /// What was recorded so far. run().rows holds the first and the newest steps in full; see docs/run-file.md.
  Run run();
  /// Best first; empty where nothing is wrong.
  std::vector<Hypothesis> explain();
  /// Changes of state, in order.
  std::vector<Transition> events();
  /// Of the run file; "" where there is none.
  std::string path() const;

 private:
  struct State;
  /// Of an optimizer object; it is watched first where it is new.
  int number_of(torch::optim::Optimizer& optimizer);
  int remember(const void* optimizer, int number);
  std::vector<std::size_t>& group_sizes(int optimizer);  // as they were when its parameters were held
  int recall(const void* optimizer) const;               ///< -1: not known
  std::unique_ptr<State> state_;
};

std::ostream& operator<<(std::ostream& out, const Hypothesis& hypothesis);

}  // namespace firstfault
