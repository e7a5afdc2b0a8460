// What a Guard is made of: snapshots, the program's side of a step, and the step that is being made.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "firstfault/guard/looked_into.h"
#include "firstfault/live/guard.h"
#include "firstfault/live/guard/batch_memory.h"
#include "firstfault/live/guard/experiments.h"
#include "firstfault/live/guard/grad_scaler.h"
#include "firstfault/live/guard/left_over.h"
#include "firstfault/live/guard/step_check.h"
#include "firstfault/live/optimizer_copy.h"

namespace firstfault {

/// Of all optimizers of a guard.
class OptimizerCopies {
 public:
  OptimizerCopies() = default;
  explicit OptimizerCopies(const Guard::Optimizers& optimizers) {
    for (torch::optim::Optimizer& one : optimizers) all_.emplace_back(one);
  }
  void renew() {
    for (OptimizerCopy& one : all_) one.renew();
  }
  void restore() const {
    for (const OptimizerCopy& one : all_) one.restore();
  }
  std::int64_t bytes() const {
    std::int64_t sum = 0;
    for (const OptimizerCopy& one : all_) sum += one.bytes();
    return sum;
  }

 private:
  std::vector<OptimizerCopy> all_;
};

/// All that a run goes back to.
struct GuardSnapshot {
  std::int64_t step = 0;
  OptimizerCopies optimizers;
  guard::Copies rest;  ///< buffers, and parameters that no optimizer holds
  guard::RandomState random;
  std::optional<GradScalerState> scale;
  std::shared_ptr<void> own;  ///< of GuardOptions::save

  std::int64_t bytes() const { return optimizers.bytes() + rest.bytes(); }
  void restore(const GuardOptions& options) const;
};

/// In the order of their steps. Pointers to them are good until the next take() or go_back().
class GuardSnapshots {
 public:
  GuardSnapshots(torch::nn::Module& model, Guard::Optimizers optimizers, const GuardOptions& options)
      : model_(model), optimizers_(std::move(optimizers)), options_(options) {}

  /// None is taken of an optimizer whose state is not known.
  void take(std::int64_t step);
  /// One that is not kept.
  std::optional<GuardSnapshot> now(std::int64_t step) const;
  /// The one to roll back to, nullptr for none.
  const GuardSnapshot* usable(const guard::Policy& policy) const;
  const GuardSnapshot* oldest_before(std::int64_t step) const;
  const GuardSnapshot* newest_until(std::int64_t step) const;
  /// Those after it are of a run that has not been.
  void go_back(const GuardSnapshot& snapshot);
  bool empty() const noexcept { return all_.empty(); }
  const std::vector<GuardSnapshot>& all() const noexcept { return all_; }

 private:
  torch::nn::Module& model_;
  Guard::Optimizers optimizers_;
  const GuardOptions& options_;
  std::vector<GuardSnapshot> all_;
};

/// Which modules train.
class TrainFlags {
 public:
  TrainFlags() = default;
  explicit TrainFlags(torch::nn::Module& model);
  void restore() const;

 private:
  std::vector<std::pair<torch::nn::Module*, bool>> flags_;
};

/// Of a loss of one number; nullopt: it is none.
std::optional<double> number_of(const at::Tensor& loss);

using StepCall = std::function<at::Tensor(const guard::BatchTensors&)>;

/// The program's side of a step, as it is made and as it is replayed.
class GuardedProgram final : public guard::ReplayProgram {
 public:
  GuardedProgram(torch::nn::Module& model, Guard::Optimizers optimizers, const GuardOptions& options)
      : model_(model), optimizers_(std::move(optimizers)), options_(options) {}

  /// Keeps what the step begins with. `steps`: the optimizers that make one.
  void begin(const StepCall& call, Guard::Optimizers steps);
  at::Tensor call(const guard::BatchTensors& batch) const { return (*call_)(batch); }
  /// Keeps what it ended with, before the first replay.
  void pause();
  /// As they were when the last step began.
  const TrainFlags& training() const noexcept { return training_; }

  /// Parameters, state and hyperparameters from before the step; they are put back before each replay.
  const OptimizerCopies* copy() const { return has_copy_ ? &*copy_ : nullptr; }
  /// As they are now: of a step that has not been written.
  void make_copy();

  std::function<void()> before_write;  ///< of an experiment: right before the optimizer's step in a replay

  void restore() override;
  at::Tensor run(const guard::BatchTensors& batch, bool write) override;
  void resume() override;

 private:
  torch::nn::Module& model_;
  Guard::Optimizers optimizers_, steps_;
  const GuardOptions& options_;
  const StepCall* call_ = nullptr;
  std::shared_ptr<void> own_before_, own_after_;
  TrainFlags training_;
  std::optional<OptimizerCopies> copy_;  ///< kept from step to step where each needs one
  bool has_copy_ = false;                ///< of this step
  std::optional<GradScalerState> scale_before_, scale_after_;
};

/// An optimizer, and what is looked at before it writes.
struct GuardedOptimizer {
  torch::optim::Optimizer& optimizer;
  guard::StepCheck check;
  std::vector<at::Tensor> held;
  std::vector<std::string> names;
  std::vector<guard::Hyperparameter> usual;  ///< as they were at the start
  std::vector<const void*> seen;             ///< parameters, when `held` was filled; compared, never followed
  std::int64_t made = 0;                     ///< steps
};

/// One faulty step, while it is dealt with.
struct GuardFault {
  std::int64_t step = 0;  ///< as the watch counts
  guard::Finding finding;
  const GuardedOptimizer* at = nullptr;  ///< before which it was found
  bool written = false;
  std::vector<Origin> origins;

  std::string_view kind() const { return name_of(finding.kind); }
  const Origin* origin() const { return origins.empty() ? nullptr : &origins.front(); }
};

GuardClip clip_of(const GuardOptions& options);
bool clips_anything(const GuardOptions& options);

struct Guard::State {
  torch::nn::Module& model;
  GuardOptions options;
  Watch watch;
  guard::Policy policy;
  std::vector<GuardedOptimizer> optimizers;
  std::vector<at::Tensor> held;  ///< by the optimizers, each once
  std::vector<std::string> names;
  guard::Copies buffers;
  guard::LeftOver left_over;
  GuardSnapshots snapshots;
  GuardedProgram program;
  guard::BatchMemory memory;
  guard::LookedInto looked_into;
  bool said_inexact = false;
  std::vector<GuardAction> actions;
  std::int64_t clips = 0, step = 0;
  bool shares_parameters = false;  ///< two optimizers write the same one
  bool one_by_one = false;         ///< of several optimizers some made a step alone
  OnReplay on_replay;

  // Of the step that is being made.
  std::vector<GuardedOptimizer*> steps;  ///< that make one
  guard::StepState began;
  std::vector<std::int64_t> batch_versions;
  bool writes_batch = false;  ///< then it is copied before each step

  State(torch::nn::Module& module, const Optimizers& of, GuardOptions given);

  // guard_step.cpp
  void refresh();
  void choose(torch::optim::Optimizer* only);
  void begin(const guard::BatchTensors& batch, const StepCall& call);
  void make(const guard::BatchTensors& batch, at::Tensor& loss, GuardFault& fault);
  void make_with_closure(const guard::BatchTensors& batch, at::Tensor& loss, GuardFault& fault);
  void refuse(const at::Tensor& loss);
  void write(const at::Tensor& loss);
  guard::Finding look_at_result(GuardedOptimizer& one, bool all);
  guard::StepCheck::Answer look(GuardedOptimizer& one, const at::Tensor& loss);
  bool left_to_scaler(const guard::StepCheck::Answer& answer) const;
  void note_clip(const guard::StepCheck::Answer& answer);
  bool all_is_finite();
  void end(const guard::BatchTensors& batch);

  // guard_replay.cpp
  void look_at_batch(const guard::BatchTensors& batch);
  void find_origin(GuardFault& fault);
  void replay(GuardFault& fault, const at::Tensor& loss);
  void look_into(GuardFault& fault, guard::Replayer& replayer, const guard::ReplayResult& result);
  void learn(GuardFault& fault, guard::Exactness exactness, const std::vector<Experiment>& made);
  void say_once(const guard::Exactness& exactness);

  // guard_changes.cpp: what is changed in experiments; nullopt where it does not apply
  std::vector<guard::OwnChange> own_changes(const GuardFault& fault, const Run& recorded);
  std::optional<guard::OwnChange> repaired_hyperparameters(const GuardedOptimizer& one);
  std::optional<guard::OwnChange> earlier_state();
  std::optional<guard::OwnChange> in_float32(const Run& recorded);
  std::optional<guard::OwnChange> drawn_anew();
  std::optional<guard::OwnChange> without_left_over();

  // guard_prove.cpp
  std::vector<Experiment> prove_windows(const std::vector<Hypothesis>& suspected, const Run& recorded,
                                        const WindowCalls& windows);

  void apply(GuardFault& fault);
};

}  // namespace firstfault
