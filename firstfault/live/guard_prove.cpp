// Windows of steps under a C++ Guard, run again with one thing changed each.
#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include "firstfault/base/error.h"
#include "firstfault/events/experiment.h"
#include "firstfault/guard/prove.h"
#include "firstfault/live/guard/experiments/float32.h"
#include "firstfault/live/guard/gradients.h"
#include "firstfault/live/guard/standardise.h"
#include "firstfault/live/guard_parts.h"
#include "firstfault/reason/changes.h"

namespace firstfault {
namespace {

using namespace experiment;

// What a change does while a window is run. Lives no longer than that run.
struct Applied {
  std::function<guard::BatchTensors(std::int64_t, guard::BatchTensors)> batch;
  std::function<double(std::int64_t)> rate;  // factor of the learning rate in the n-th step, from 1
  bool without_decay = false, drops_gradients = false;
  std::shared_ptr<guard::InFloat32> wide;
};

double known_loss(const at::Tensor& loss) {
  if (const auto number = number_of(loss)) return *number;
  throw Guard::BatchesFailed{std::make_exception_ptr(
      Error("firstfault: guard: prove() judges by the loss; train_step must return it, as a tensor of one number"))};
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

// The steps since a snapshot.
class Windows final : public guard::WindowProgram {
 public:
  Windows(Guard::State& state, const Guard::WindowCalls& program, const GuardSnapshot& start, std::int64_t onset)
      : state_(state), program_(program), start_(start), onset_(onset) {}

  std::optional<guard::WindowRun> run(const guard::WindowChange* change, std::int64_t steps, bool watched) override {
    start_.restore(state_.options);
    state_.program.training().restore();
    for (const at::Tensor& parameter : state_.held) parameter.mutable_grad() = at::Tensor();
    clips_.clear();
    for (std::size_t i = 0; i < state_.optimizers.size(); ++i) clips_.emplace_back(clip_of(state_.options), 0);
    Applied applied;
    if (change && !apply(*change, applied)) return std::nullopt;
    guard::WindowRun made;
    if (watched) {
      Watch watch(state_.model, state_.optimizers.front().optimizer, window_options());
      for (GuardedOptimizer& one : state_.optimizers) {
        if (&one != &state_.optimizers.front()) watch.watch(one.optimizer);
      }
      make(applied, steps, &watch, made);
      const Run seen = watch.run();
      made.nonfinite = !seen.origins.empty();
      made.causes = reason::causes_of(seen);
    } else {
      make(applied, steps, nullptr, made);
    }
    // What the program casts by itself stays as it was: where nothing is cured then, nothing was changed.
    if (applied.wide && applied.wide->low() && guard::shows_a_fault(made)) return std::nullopt;
    return made;
  }

 private:
  WatchOptions window_options() const {
    WatchOptions options = state_.options.watch;
    options.run_file.clear();
    if (options.level == "gradients") options.level = "ops";  // dead units show in activations alone
    return options;
  }

  void make(const Applied& applied, std::int64_t steps, Watch* watch, guard::WindowRun& made) {
    for (std::int64_t n = 0; n < steps; ++n) {
      try {
        made.losses.push_back(make_one(applied, n, watch));
      } catch (const Guard::DataEnded&) {
        break;
      } catch (const std::exception&) {  // as with parameters that are NaN by then
        made.losses.push_back(std::nan(""));
        made.threw = true;
      }
      if (!std::isfinite(made.losses.back())) break;
    }
    if (applied.wide) applied.wide->end();
  }

  double make_one(const Applied& applied, std::int64_t n, Watch* watch) {
    const auto call = [&] {
      return program_.step(start_.step + n, [&](guard::BatchTensors batch) {
        if (state_.writes_batch) {
          for (at::Tensor& tensor : batch) tensor = guard::unseen_copy(tensor);
        }
        return applied.batch ? applied.batch(start_.step + n, std::move(batch)) : batch;
      });
    };
    GuardedOptimizer& first = state_.optimizers.front();
    const bool closure = needs_closure(first.optimizer);
    at::Tensor loss;
    if (!closure) loss = call();
    for (std::size_t i = 0; i < state_.optimizers.size(); ++i) {
      torch::optim::Optimizer& optimizer = state_.optimizers[i].optimizer;
      const ForOneStep numbers(optimizer, applied, n + 1);
      const auto write = [&] {
        if (closure) {
          optimizer.step([&] { return loss = call(); });
        } else {
          clip_and_write(i);
        }
      };
      if (watch) {
        watch->step(optimizer, loss, write);
      } else {
        write();
      }
    }
    if (state_.options.scaler) state_.options.scaler->update();
    if (applied.drops_gradients) {
      for (const at::Tensor& parameter : state_.held) parameter.mutable_grad() = at::Tensor();
    }
    return known_loss(loss);
  }

  // As the guard does, but that nothing is refused.
  void clip_and_write(std::size_t i) {
    const GuardedOptimizer& one = state_.optimizers[i];
    GradScaler* scaler = state_.options.scaler;
    if (scaler) scaler->unscale_(one.optimizer);
    if (clips_anything(state_.options)) clips_[i].before({one.held, one.names, {}, 0});
    if (scaler) {
      scaler->step(one.optimizer);
    } else {
      one.optimizer.step();
    }
  }

  // False for one that cannot be made here.
  bool apply(const guard::WindowChange& change, Applied& applied) {
    const std::string_view name = change.name;
    if (name == kLowerRate) {
      applied.rate = [by = static_cast<double>(change.divisor)](std::int64_t) { return 1 / by; };
      return true;
    }
    if (name == kWarmUp) {
      applied.rate = [over = static_cast<double>(change.warm_up)](std::int64_t n) {
        return std::min(1.0, static_cast<double>(n) / over);
      };
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
    } catch (const Guard::DataEnded&) {
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
    applied.batch = [onset = onset_, before = batch_of(onset_ - 1)](std::int64_t number, auto batch) {
      return number == onset && before.size() == batch.size() ? before : batch;
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
    applied.batch = [onset = onset_, clip](std::int64_t number, auto batch) {
      if (number == onset) clip(batch);
      return batch;
    };
    return true;
  }

  Guard::State& state_;
  const Guard::WindowCalls& program_;
  const GuardSnapshot& start_;
  std::int64_t onset_;
  std::vector<guard::StepCheck> clips_;  // with a history of their own
};

// Puts all back, and lets the watch go on, at the end of its life.
class AsItWas {
 public:
  AsItWas(Guard::State& state, GuardSnapshot now)
      : state_(state), now_(std::move(now)), gradients_(guard::gradients_of(state.held)), flags_(state.model) {
    state.watch.pause();
  }
  ~AsItWas() noexcept(false) {
    state_.watch.resume();
    for (std::size_t i = 0; i < gradients_.size(); ++i) state_.held[i].mutable_grad() = gradients_[i];
    flags_.restore();
    for (GuardedOptimizer& one : state_.optimizers) one.check.forget();
    now_.restore(state_.options);  // may call the program, which may throw
  }
  AsItWas(const AsItWas&) = delete;
  AsItWas& operator=(const AsItWas&) = delete;

 private:
  Guard::State& state_;
  GuardSnapshot now_;
  std::vector<at::Tensor> gradients_;
  TrainFlags flags_;
};

}  // namespace

std::vector<Experiment> Guard::State::prove_windows(const std::vector<Hypothesis>& suspected, const Run& recorded,
                                                    const WindowCalls& windows) {
  const Hypothesis& best = suspected.front();
  // The watch counts a step per optimizer.
  const auto own_step = [&](std::int64_t watched) { return watched / std::ssize(optimizers); };
  const std::int64_t onset = own_step(best.onset_step.value_or(best.step));
  guard::WindowPlan plan{.step = best.step};
  plan.diverged = std::any_of(actions.begin(), actions.end(), [&](const GuardAction& one) {
    return own_step(one.step) == own_step(best.step) && !one.fault.empty();
  });
  plan.raw_scores = holds(recorded, FactKind::raw_scores);
  plan.own = reason::changes_for(suspected);
  std::vector<std::int64_t> starts;
  for (const GuardSnapshot& one : snapshots.all()) starts.push_back(one.step);
  std::vector<Experiment> made;
  for (const auto& span : guard::window_spans(onset, own_step(best.step), step, plan.diverged, starts)) {
    plan.first = span.first, plan.steps = span.steps;
    Windows program_windows(*this, windows, *snapshots.newest_until(span.first), onset);
    made = guard::prove_by_windows(program_windows, plan);
    if (!made.empty() && made.front().outcome == ExperimentOutcome::failed) break;
  }
  return made;
}

std::vector<Hypothesis> Guard::prove_with(const WindowCalls& program) {
  State& state = *state_;
  if (state.one_by_one) {
    throw Error("firstfault: guard: prove() makes the steps of all optimizers together; here some made theirs alone");
  }
  auto known = state.watch.explain();
  const auto settled = [](const Hypothesis& one) {
    return one.standing == Standing::confirmed || one.standing == Standing::not_separable;
  };
  auto now = state.snapshots.now(state.step);
  if (known.empty() || !state.watch.running() || settled(known.front()) || !now) return known;
  const Run recorded = state.watch.run();
  const std::int64_t step = known.front().step;
  std::erase_if(known, [&](const Hypothesis& one) { return one.step != step; });
  std::vector<Experiment> made;
  try {
    const AsItWas afterwards(state, std::move(*now));
    made = state.prove_windows(known, recorded, program);
  } catch (const BatchesFailed& failed) {
    std::rethrow_exception(failed.error);
  }
  state.watch.learned(step, {}, made);
  return state.watch.explain();
}

}  // namespace firstfault
