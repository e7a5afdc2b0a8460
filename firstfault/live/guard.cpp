// One optimizer's steps under guard: the same order of things as in Python, where hooks do it.
#include "firstfault/live/guard.h"

#include <cstdio>
#include <iterator>

#include "firstfault/base/error.h"
#include "firstfault/base/names.h"
#include "firstfault/live/guard_parts.h"
#include "firstfault/record/limits.h"

namespace firstfault {

using guard::Action;

namespace {

void check(const GuardOptions& options, const Guard::Optimizers& optimizers) {
  if (optimizers.empty()) throw Error("firstfault: guard: there is no optimizer to guard", Error::Kind::bad_value);
  const int ways = (options.max_norm > 0 || options.adaptive) + (options.clip_value > 0) + (options.clip_factor > 0);
  if (ways > 1) {
    throw Error("firstfault: guard: clip by norm, by value or by unit, not by several", Error::Kind::bad_value);
  }
  if (options.snapshot_every < 1) {
    throw Error("firstfault: guard: snapshot_every takes numbers from 1 on", Error::Kind::bad_value);
  }
  const bool goes_back =
      options.on_fault == OnFault::rollback || options.after_skips == OnFault::rollback || options.undo_step;
  for (torch::optim::Optimizer& one : optimizers) {
    if (!goes_back || is_known(one)) continue;
    throw Error(
        "firstfault: guard: what this optimizer keeps in its state is not known, so that nothing can be rolled "
        "back or undone; use on_fault raise or skip without undo_step, or one of LibTorch's optimizers");
  }
}

GuardAction::Kind kind_of(Action action) {
  constexpr GuardAction::Kind kinds[] = {GuardAction::Kind::clip, GuardAction::Kind::skip, GuardAction::Kind::rollback,
                                         GuardAction::Kind::warn, GuardAction::Kind::stop};
  return kinds[static_cast<int>(action)];
}

}  // namespace

void Guard::State::apply(GuardFault& fault) {
  const GuardSnapshot* back = snapshots.usable(policy);
  const guard::Situation situation{fault.written, program.copy() != nullptr, back != nullptr,
                                   back ? step - back->step : 0};
  const guard::Measure measure = policy.faulty(situation);
  for (GuardedOptimizer& one : optimizers) one.check.forget();
  GuardAction done;
  done.step = fault.step;
  done.kind = kind_of(measure.action);
  done.fault = fault.kind();
  done.reason = fault.finding.reason;
  done.undone = measure.undone;
  if (measure.goes_back) {
    done.snapshot = back->step;
    done.lost = situation.would_lose;
    snapshots.go_back(*back);
    watch.rolled_back();
  } else if (measure.action != Action::warn) {
    if (fault.written && program.copy() != nullptr) program.copy()->restore();
    buffers.restore();
  } else {
    std::fprintf(stderr, "firstfault: step %lld: %s; the step was made all the same\n",
                 static_cast<long long>(fault.step), printable(done.reason).c_str());
  }
  watch.acted(done);
  if (std::ssize(actions) < record::kMaxActions) actions.push_back(std::move(done));
  ++step;
  if (measure.action != Action::stop) return;
  throw TrainingFault(
      "step " + std::to_string(fault.step) + ": " + fault.finding.reason + policy.why_stopped(situation),
      std::move(fault.origins), watch.explain());
}

Guard::Guard(torch::nn::Module& model, torch::optim::Optimizer& optimizer, GuardOptions options)
    : Guard(model, Optimizers{optimizer}, std::move(options)) {}

Guard::Guard(torch::nn::Module& model, Optimizers optimizers, GuardOptions options) {
  check(options, optimizers);
  state_ = std::make_unique<State>(model, optimizers, std::move(options));
}

Guard::~Guard() = default;

const std::vector<GuardAction>& Guard::actions() const noexcept { return state_->actions; }
std::int64_t Guard::steps() const noexcept { return state_->step; }
Watch& Guard::watch() noexcept { return state_->watch; }
void Guard::on_replay(OnReplay callback) { state_->on_replay = std::move(callback); }

at::Tensor Guard::make_step(torch::optim::Optimizer* only, const guard::BatchTensors& batch, const Call& call) {
  State& state = *state_;
  state.choose(only);
  state.begin(batch, call);
  at::Tensor loss;
  GuardFault fault;
  fault.step = state.watch.running() ? state.watch.steps() : state.step;
  state.make(batch, loss, fault);
  if (!fault.finding.faulty()) {
    state.end(batch);
    return loss;
  }
  state.look_at_batch(batch);
  state.find_origin(fault);
  state.replay(fault, loss);
  state.apply(fault);
  return loss;
}

}  // namespace firstfault
