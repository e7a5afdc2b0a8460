// Guard: keeps faulty steps out of the parameters, and writes down what it did.
#pragma once

#include <concepts>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "firstfault/events/guard_action.h"
#include "firstfault/guard/policy.h"
#include "firstfault/live/guard/replay.h"
#include "firstfault/live/watch.h"

namespace firstfault {

class GradScaler;

struct GuardOptions {
  // How gradients are clipped right before the optimizer takes them; at most one of them. 0: not.
  double max_norm = 0;     ///< by global norm
  bool adaptive = false;   ///< by AdaptiveClip, with max_norm as its ceiling
  double clip_value = 0;   ///< by value
  double clip_factor = 0;  ///< by unit

  OnFault on_fault = OnFault::raise;
  std::int64_t max_consecutive_skips = 10;
  OnFault after_skips = OnFault::raise;  ///< raise or rollback
  std::int64_t max_rollbacks = 3;        ///< without making good what the first one lost
  double spike = 0;  ///< robust z of a gradient norm from which on a step is faulty for its size; 0: never
  /// What the optimizer's own arithmetic breaks is undone from a copy, taken right before it writes where that may
  /// become non-finite; else from the last snapshot.
  bool undo_step = false;
  std::int64_t snapshot_every = 100;
  std::int64_t snapshot_bytes = std::int64_t{1} << 30;
  int replays = 2;  ///< unchanged, of a faulty step whose origin the watch has not seen; 0: none, and no experiments
  bool experiments = true;       ///< replays with one thing changed each (docs/replay.md), of at most 4 faulty steps
  int max_replays = 64;          ///< of a faulty step, all experiments together
  double max_seconds = 30;       ///< likewise
  GradScaler* scaler = nullptr;  ///< steps that it leaves out are its own business; Guard calls its step() and update()
  WatchOptions watch = {};

  /// The program's own state that its step function reads and changes (a counter, a generator), for replays:
  /// `save` copies it, `restore` puts such a copy back.
  std::function<std::shared_ptr<void>()> save = {};
  std::function<void(const std::shared_ptr<void>&)> restore = {};
};

/// A step that must not be made, or skips without end. Nothing that is not finite has been written.
class TrainingFault : public std::runtime_error {
 public:
  TrainingFault(const std::string& what, std::vector<Origin> origins, std::vector<Hypothesis> hypotheses)
      : std::runtime_error(what), origins_(std::move(origins)), hypotheses_(std::move(hypotheses)) {}
  /// Where it began; nullptr where that is not known.
  const Origin* origin() const noexcept { return origins_.empty() ? nullptr : &origins_.front(); }
  const std::vector<Hypothesis>& hypotheses() const noexcept { return hypotheses_; }

 private:
  std::vector<Origin> origins_;
  std::vector<Hypothesis> hypotheses_;
};

namespace guard {

// visit(at::Tensor&) for each tensor of a batch: tensors, vectors, pairs, tuples, torch::data::Example. For a type of
// your own, write for_each_tensor(YourBatch&, visit) beside it.
template <class T, class Visit>
void for_each_tensor(std::vector<T>& items, Visit&& visit);
template <class... T, class Visit>
void for_each_tensor(std::tuple<T...>& items, Visit&& visit);
template <class A, class B, class Visit>
void for_each_tensor(std::pair<A, B>& items, Visit&& visit);
template <class Visit>
void for_each_tensor(at::Tensor& tensor, Visit&& visit) {
  visit(tensor);
}
template <class T, class Visit>
void for_each_tensor(std::vector<T>& items, Visit&& visit) {
  for (T& item : items) for_each_tensor(item, visit);
}
template <class... T, class Visit>
void for_each_tensor(std::tuple<T...>& items, Visit&& visit) {
  std::apply([&](T&... each) { (for_each_tensor(each, visit), ...); }, items);
}
template <class A, class B, class Visit>
void for_each_tensor(std::pair<A, B>& items, Visit&& visit) {
  for_each_tensor(items.first, visit);
  for_each_tensor(items.second, visit);
}
template <class T, class Visit>
requires requires(T& example) {
  { example.data } -> std::convertible_to<at::Tensor>;
  { example.target } -> std::convertible_to<at::Tensor>;
}
void for_each_tensor(T& example, Visit&& visit) {
  for_each_tensor(example.data, visit);
  for_each_tensor(example.target, visit);
}

}  // namespace guard

/// Guards the steps of one or several optimizers. All that holds for Watch holds here: it has one. Model, optimizers
/// and scaler must outlive it. One thread, the one that trains.
///
/// A faulty step (loss, gradient or hyperparameter not finite, an eps that is 0 in the dtype it is added to, a spike
/// where asked for) is found before the optimizer writes; then by policy: TrainingFault, a skip, or a rollback of
/// parameters, buffers, optimizer state and random state.
class Guard {
 public:
  using Optimizers = std::vector<std::reference_wrapper<torch::optim::Optimizer>>;

  Guard(torch::nn::Module& model, torch::optim::Optimizer& optimizer, GuardOptions options = {});
  /// Each clips its own gradients; a rollback takes all of them back. Error where there is none.
  Guard(torch::nn::Module& model, Optimizers optimizers, GuardOptions options = {});
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  /// Makes one step: `train_step(batch)` does zero_grad, forward and backward and returns the loss; the optimizer's
  /// step is Guard's, do not call it. It may be called again for replays, with fresh copies of the batch's tensors.
  /// Of several optimizers each makes a step, in order, or where the step is faulty none. Error where one of several
  /// calls the step function itself, as LBFGS does.
  template <class Batch, class Step>
  at::Tensor step(const Batch& batch, Step&& train_step) {
    return step_with(nullptr, batch, std::forward<Step>(train_step));
  }
  /// The same, where of several optimizers this one makes its step: the two halves of a GAN. Error where it is not one
  /// of Guard's.
  template <class Batch, class Step>
  at::Tensor step(torch::optim::Optimizer& optimizer, const Batch& batch, Step&& train_step) {
    return step_with(&optimizer, batch, std::forward<Step>(train_step));
  }

  /// What was done, in order: the first 10,000, of the clips the first 4,096.
  const std::vector<GuardAction>& actions() const noexcept;
  std::int64_t steps() const noexcept;  ///< attempted
  Watch& watch() noexcept;
  Run run() { return watch().run(); }
  std::vector<Hypothesis> explain() { return watch().explain(); }

  /// Tests what needs whole windows of steps, as a divergence or a learning rate without warm-up do: minutes rather
  /// than moments (docs/replay.md). `batches(step)` gives the batch of a step, from step 0 on and also beyond the last
  /// one that was made; it throws std::out_of_range where there is none. `train_step` as for step(). Gives the
  /// hypotheses as they stand then. Parameters, state and random numbers are afterwards as they were, and so is what
  /// GuardOptions::save keeps. An exception of `batches` other than that one goes through. Error where of several
  /// optimizers some made steps alone, and where `train_step` gives no loss.
  template <class Batches, class Step>
  std::vector<Hypothesis> prove(Batches&& batches, Step&& train_step) {
    using guard::for_each_tensor;
    const auto tensors_of = [](auto& batch) {
      guard::BatchTensors tensors;
      for_each_tensor(batch, [&](at::Tensor& tensor) { tensors.push_back(tensor); });
      return tensors;
    };
    const auto batch_of = [&](std::int64_t step) {
      try {
        return batches(step);
      } catch (const std::out_of_range&) {
        throw DataEnded();
      } catch (...) {
        throw BatchesFailed{std::current_exception()};
      }
    };
    return prove_with({
        [&](std::int64_t step) {
          auto batch = batch_of(step);
          return tensors_of(batch);
        },
        [&](std::int64_t step, const BatchChange& change) {
          auto batch = batch_of(step);
          const guard::BatchTensors changed = change(tensors_of(batch));
          std::size_t next = 0;
          for_each_tensor(batch, [&](at::Tensor& tensor) { tensor = changed.at(next++); });
          return at::Tensor(train_step(batch));
        },
    });
  }

  /// Is called with each faulty step, before the policy: to run it again with changes. The step is over when it
  /// returns.
  using OnReplay = std::function<void(guard::Replayer&, const guard::ReplayResult& step)>;
  void on_replay(OnReplay callback);

  // Of prove(). What `train_step` throws only ends a window.
  struct DataEnded {};
  struct BatchesFailed {
    std::exception_ptr error;
  };
  using BatchChange = std::function<guard::BatchTensors(guard::BatchTensors)>;
  struct WindowCalls {
    std::function<guard::BatchTensors(std::int64_t step)> batch;
    std::function<at::Tensor(std::int64_t step, const BatchChange&)> step;
  };
  struct State;

 private:
  using Call = std::function<at::Tensor(const guard::BatchTensors&)>;
  std::vector<Hypothesis> prove_with(const WindowCalls& program);
  at::Tensor make_step(torch::optim::Optimizer* only, const guard::BatchTensors& batch, const Call& call);

  template <class Batch, class Step>
  at::Tensor step_with(torch::optim::Optimizer* only, const Batch& batch, Step&& train_step) {
    using guard::for_each_tensor;
    guard::BatchTensors tensors;
    Batch whole = batch;
    for_each_tensor(whole, [&](at::Tensor& tensor) { tensors.push_back(tensor); });
    return make_step(only, tensors, [&](const guard::BatchTensors& given) {
      Batch fresh = batch;
      std::size_t next = 0;
      for_each_tensor(fresh, [&](at::Tensor& tensor) { tensor = given.at(next++); });
      return at::Tensor(train_step(fresh));
    });
  }

  std::unique_ptr<State> state_;
};

}  // namespace firstfault
