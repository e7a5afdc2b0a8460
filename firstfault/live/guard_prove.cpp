// Windows of steps under a C++ Guard, run again with one thing changed each.
#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <utility>

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include "firstfault/base/error.h"
#include "firstfault/events/experiment.h"
#include "firstfault/guard/prove.h"
#include "firstfault/live/guard/experiments/float32.h"
#include "firstfault/live/guard/standardise.h"
#include "firstfault/live/guard_parts.h"
#include "firstfault/live/measure/scan.h"
#include "firstfault/reason/changes.h"

namespace firstfault {
namespace {

using namespace experiment;

constexpr std::int64_t kMostSteps = 5000;  // of the unchanged window
constexpr std::int64_t kMargin = 2;        // steps after the fault
constexpr std::int64_t kBefore = 50;       // steps before the onset, for a watch to learn what is usual

// What a change does, and when.
struct Applied {
  std::function<guard::BatchTensors(std::int64_t, guard::BatchTensors)> batch;
  std::function<double(std::int64_t)> rate;  // factor of the learning rate in the n-th step, from 1
  bool without_decay = false, drops_gradients = false;
  std::shared_ptr<guard::InFloat32> wide;
};

double number_of(const at::Tensor& loss) {
  if (!loss.defined() || loss.numel() != 1) return std::nan("");
  return loss.is_cpu() ? measure::value_at(loss, 0) : loss.detach().to(at::kCPU, at::kDouble).item<double>();
}

// Numbers of the optimizer as they are for one step; put back after it.
class ForOneStep {
 public:
  ForOneStep(torch::optim::Optimizer& optimizer, const Applied& applied, std::int64_t step) : optimizer_(optimizer) {
    if (!applied.rate && !applied.without_decay) return;
    for (auto& group : optimizer.param_groups()) saved_.push_back(group.options().clone());
    for (auto& group : optimizer.param_groups()) {
      if (applied.rate) group.options().set_lr(group.options().get_lr() * applied.rate(step));
    }
    if (applied.without_decay) set_weight_decay(optimizer, 0);
  }
  ~ForOneStep() {
    for (std::size_t i = 0; i < saved_.size(); ++i) optimizer_.param_groups()[i].set_options(std::move(saved_[i]));
  }
  ForOneStep(const ForOneStep&) = delete;
  ForOneStep& operator=(const ForOneStep&) = delete;

 private:
  torch::optim::Optimizer& optimizer_;
  std::vector<std::unique_ptr<torch::optim::OptimizerOptions>> saved_;
};

}  // namespace

/// The steps since a snapshot.
class GuardWindows final : public guard::WindowProgram {
 public:
  GuardWindows(Guard::State& state, const Guard::WindowCalls& program, const GuardSnapshot& start, std::int64_t onset)
      : state_(state), program_(program), start_(start), onset_(onset) {}

  std::optional<guard::WindowRun> run(const guard::WindowChange* change, std::int64_t steps, bool watched) override {
    start_.restore(state_.options);
    for (const at::Tensor& parameter : state_.held) parameter.mutable_grad() = at::Tensor();
    Applied applied;
    if (change && !apply(*change, applied)) return std::nullopt;
    guard::WindowRun made;
    if (!watched) {
      make(applied, steps, nullptr, made.losses);
    } else {
      Watch watch(state_.model, state_.optimizers.front().optimizer, window_options());
      for (GuardedOptimizer& one : state_.optimizers) {
        if (&one != &state_.optimizers.front()) watch.watch(one.optimizer);
      }
      make(applied, steps, &watch, made.losses);
      made.nonfinite = !watch.run().origins.empty();
      made.healthy = !made.nonfinite && watch.explain().empty();
    }
    return made;
  }

 private:
  WatchOptions window_options() const {
    WatchOptions options = state_.options.watch;
    options.run_file.clear();
    if (options.level == "gradients") options.level = "ops";  // dead units show in activations alone
    return options;
  }

  void make(const Applied& applied, std::int64_t steps, Watch* watch, std::vector<double>& losses) {
    std::vector<guard::StepCheck> clips;
    for (std::size_t i = 0; i < state_.optimizers.size(); ++i) clips.emplace_back(clip_of(state_.options), 0);
    for (std::int64_t n = 0; n < steps; ++n) {
      try {
        losses.push_back(make_one(applied, n, watch, clips));
      } catch (const std::out_of_range&) {  // the data have ended
        break;
      } catch (const std::exception&) {  // as with parameters that are NaN by then
        losses.push_back(std::nan(""));
      }
      if (!std::isfinite(losses.back())) break;
    }
    if (applied.wide) applied.wide->end();
  }

  double make_one(const Applied& applied, std::int64_t n, Watch* watch, std::vector<guard::StepCheck>& clips) {
    const std::int64_t number = start_.step + n;
    const auto change = [&](guard::BatchTensors batch) {
      return applied.batch ? applied.batch(number, std::move(batch)) : std::move(batch);
    };
    GuardedOptimizer& first = state_.optimizers.front();
    const bool closure = state_.optimizers.size() == 1 && needs_closure(first.optimizer);
    at::Tensor loss;
    if (!closure) loss = program_.step(number, change);
    GradScaler* scaler = state_.options.scaler;
    for (std::size_t i = 0; i < state_.optimizers.size(); ++i) {
      GuardedOptimizer& one = state_.optimizers[i];
      const ForOneStep numbers(one.optimizer, applied, n + 1);
      const auto write = [&] {
        if (closure) {
          one.optimizer.step([&] { return loss = program_.step(number, change); });
          return;
        }
        if (scaler) scaler->unscale_(one.optimizer);
        if (clips_anything(state_.options)) clips[i].before({one.held, one.names, {}, 0});
        if (scaler) {
          scaler->step(one.optimizer);
        } else {
          one.optimizer.step();
        }
      };
      if (watch) {
        watch->step(one.optimizer, loss, write);
      } else {
        write();
      }
    }
    if (scaler) scaler->update();
    if (applied.drops_gradients) {
      for (const at::Tensor& parameter : state_.held) parameter.mutable_grad() = at::Tensor();
    }
    return number_of(loss);
  }

  // False for one that cannot be made here.
  bool apply(const guard::WindowChange& change, Applied& applied) {
    const std::string_view name = change.name;
    if (name == kLowerRate) return applied.rate = [by = change.times](auto) { return 1.0 / double(by); }, true;
    if (name == kWarmUp) {
      applied.rate = [over = change.warm_up](auto n) { return std::min(1.0, double(n) / double(over)); };
      return true;
    }
    if (name == kZeroGrad) return applied.drops_gradients = true;
    if (name == kWithoutDecay) return applied.without_decay = true;
    if (name == kInitialised) return guard::draw_anew(state_.held), true;
    if (name == kFloat32) return in_float32(applied);
    if (name == kStandardised) return standardised(applied);
    if (name == kOtherBatch) return other_batch(applied);
    if (name == kBatchClipped) return clipped(applied);
    return false;
  }

  bool in_float32(Applied& applied) {
    std::vector<at::Tensor> tensors = state_.held;
    for (const at::Tensor& one : state_.model.parameters()) tensors.push_back(one);
    for (const at::Tensor& one : state_.model.buffers()) tensors.push_back(one);
    for (const GuardedOptimizer& one : state_.optimizers) {
      for (const StateTensor& state : state_tensors(one.optimizer)) tensors.push_back(state.tensor);
    }
    applied.wide = std::make_shared<guard::InFloat32>();
    applied.wide->begin(tensors);
    applied.batch = [](auto, auto batch) { return guard::InFloat32::widened(std::move(batch)); };
    return true;
  }

  // The tensors of a step's batch; {} where the data have ended.
  guard::BatchTensors batch_of(std::int64_t number) const {
    try {
      return program_.batch(number);
    } catch (const std::out_of_range&) {
      return {};
    }
  }

  bool standardised(Applied& applied) {
    auto by = std::make_shared<guard::Standardiser>(batch_of(start_.step));
    applied.batch = [by](auto, auto batch) { return (*by)(std::move(batch)); };
    return by->any();
  }

  bool other_batch(Applied& applied) {
    if (onset_ <= start_.step) return false;
    applied.batch = [this, before = batch_of(onset_ - 1)](std::int64_t number, auto batch) {
      return number == onset_ && before.size() == batch.size() ? before : batch;
    };
    return true;
  }

  bool clipped(Applied& applied) {
    auto memory = std::make_shared<guard::BatchMemory>();
    for (std::int64_t number = start_.step; number < onset_; ++number) memory->remember(batch_of(number));
    const auto clip = [memory](guard::BatchTensors& batch) {
      bool any = false;
      for (std::size_t i = 0; i < std::min(batch.size(), memory->ranges().size()); ++i) {
        const at::Tensor made = guard::clipped_to(memory->ranges()[i], batch[i], false);
        if (made.defined()) batch[i] = made, any = true;
      }
      return any;
    };
    auto at_onset = batch_of(onset_);
    if (memory->batches() < guard::BatchMemory::kEnough || !clip(at_onset)) return false;
    applied.batch = [this, clip](std::int64_t number, auto batch) {
      if (number == onset_) clip(batch);
      return batch;
    };
    return true;
  }

  Guard::State& state_;
  const Guard::WindowCalls& program_;
  const GuardSnapshot& start_;
  std::int64_t onset_;
};

std::vector<Experiment> Guard::State::prove_windows(const std::vector<Hypothesis>& suspected, const Run& recorded,
                                                    const WindowCalls& program) {
  const Hypothesis& best = suspected.front();
  const std::int64_t onset = best.onset_step.value_or(best.step);
  guard::WindowPlan plan{.step = best.step};
  plan.diverged = std::any_of(actions.begin(), actions.end(),
                              [&](const GuardAction& one) { return one.step == best.step && !one.fault.empty(); });
  plan.raw_scores = holds(recorded, FactKind::raw_scores);
  plan.own = reason::changes_for(suspected);
  std::vector<const GuardSnapshot*> starts = {
      snapshots.newest_until(plan.diverged ? onset : std::max<std::int64_t>(0, onset - kBefore))};
  if (!plan.diverged) starts.push_back(snapshots.newest_until(0));
  std::vector<Experiment> made;
  const GuardSnapshot* before = nullptr;
  for (const GuardSnapshot* start : starts) {
    if (start == nullptr || start == std::exchange(before, start)) continue;
    const std::int64_t last = plan.diverged ? best.step + kMargin : std::min(step - 1, start->step + kMostSteps);
    plan.first = start->step;
    plan.steps = last + 1 - start->step;
    GuardWindows windows(*this, program, *start, onset);
    made = guard::prove_by_windows(windows, plan);
    if (!made.empty() && made.front().outcome == ExperimentOutcome::failed) break;
  }
  return made;
}

std::vector<Hypothesis> Guard::prove_with(const WindowCalls& program) {
  State& state = *state_;
  auto known = state.watch.explain();
  const auto settled = [](const Hypothesis& one) {
    return one.standing == Standing::confirmed || one.standing == Standing::not_separable;
  };
  auto now = state.snapshots.now(state.step);
  if (known.empty() || !state.watch.running() || settled(known.front()) || !now) return known;
  const Run recorded = state.watch.run();
  const std::int64_t step = known.front().step;
  std::erase_if(known, [&](const Hypothesis& one) { return one.step != step; });
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : state.held) gradients.push_back(parameter.grad());
  const auto scale = state.options.scaler ? std::optional(state.options.scaler->state()) : std::nullopt;
  const auto as_it_was = [&] {
    now->restore(state.options);
    if (scale) state.options.scaler->load(*scale);
    for (std::size_t i = 0; i < gradients.size(); ++i) state.held[i].mutable_grad() = gradients[i];
    for (GuardedOptimizer& one : state.optimizers) one.check.forget();
    state.watch.resume();
  };
  state.watch.pause();
  std::vector<Experiment> made;
  try {
    made = state.prove_windows(known, recorded, program);
  } catch (const BatchesFailed& failed) {
    as_it_was();
    std::rethrow_exception(failed.error);
  } catch (...) {
    as_it_was();
    throw;
  }
  as_it_was();
  state.watch.learned(step, {}, made);
  return state.watch.explain();
}

}  // namespace firstfault
