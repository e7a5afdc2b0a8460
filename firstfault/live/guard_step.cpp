// One step under guard: what is looked at before the optimizer writes, and after it.
#include <algorithm>
#include <map>

#include <ATen/record_function.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include "firstfault/base/error.h"
#include "firstfault/guard/limits.h"
#include "firstfault/live/guard_parts.h"
#include "firstfault/live/measure/scan.h"

namespace firstfault {

using guard::Finding;

std::optional<double> number_of(const at::Tensor& loss) {
  if (!loss.defined() || loss.numel() != 1) return {};
  const at::DisableRecordFunctionGuard unobserved;
  return loss.is_cpu() ? measure::value_at(loss, 0) : loss.detach().to(at::kCPU, at::kDouble).item<double>();
}

GuardClip clip_of(const GuardOptions& options) {
  GuardClip clip;
  clip.max_norm = options.max_norm, clip.adaptive = options.adaptive;
  clip.clip_value = options.clip_value, clip.clip_factor = options.clip_factor;
  return clip;
}

bool clips_anything(const GuardOptions& options) {
  return options.max_norm > 0 || options.adaptive || options.clip_value > 0 || options.clip_factor > 0;
}

Guard::State::State(torch::nn::Module& module, const Optimizers& of, GuardOptions given)
    : model(module),
      options(std::move(given)),
      watch(module, of.front(), options.watch),
      policy({options.on_fault, options.max_consecutive_skips, options.after_skips, options.max_rollbacks}),
      buffers(module.buffers()),
      snapshots(module, of, options),
      program(module, of, options),
      looked_into(options.experiments, options.replays) {
  for (torch::optim::Optimizer& one : of) {
    if (&one != &of.front().get()) watch.watch(one);
    optimizers.push_back({one, guard::StepCheck(clip_of(options), options.spike), {}, {}, hyperparameters_of(one), {}});
  }
  refresh();
}

// Parameters may have joined, or others taken their place.
void Guard::State::refresh() {
  bool same = true;
  for (GuardedOptimizer& one : optimizers) {
    std::vector<const void*> now;
    for (const auto& group : one.optimizer.param_groups()) {
      for (const at::Tensor& parameter : group.params()) now.push_back(parameter.unsafeGetTensorImpl());
    }
    if (now == one.seen) continue;
    same = false;
    one.seen = std::move(now);
    one.held = parameters_of(one.optimizer);
    one.check.forget();
  }
  if (same) return;
  std::map<const c10::TensorImpl*, std::string> known;
  for (const auto& item : model.named_parameters()) known[item.value().unsafeGetTensorImpl()] = "model." + item.key();
  held.clear(), names.clear();
  shares_parameters = false;
  for (GuardedOptimizer& one : optimizers) {
    one.names.clear();
    for (const at::Tensor& parameter : one.held) {
      const auto number = "parameter " + std::to_string(held.size());
      const std::string& name = known.try_emplace(parameter.unsafeGetTensorImpl(), number).first->second;
      one.names.push_back(name);
      if (std::any_of(held.begin(), held.end(), [&](const auto& other) { return other.is_same(parameter); })) {
        shares_parameters = true;
        continue;
      }
      held.push_back(parameter);
      names.push_back(name);
    }
  }
}

// Which optimizers make a step; nullptr: all.
void Guard::State::choose(torch::optim::Optimizer* only) {
  refresh();
  steps.clear();
  for (GuardedOptimizer& one : optimizers) {
    if (!only || only == &one.optimizer) steps.push_back(&one);
  }
  if (steps.empty()) throw Error("firstfault: guard: this optimizer is not guarded; give it to the constructor");
  one_by_one = one_by_one || steps.size() < optimizers.size();
  const bool closure =
      std::any_of(steps.begin(), steps.end(), [](const auto* one) { return needs_closure(one->optimizer); });
  if (closure && steps.size() > 1) {
    throw Error(
        "firstfault: guard: of several optimizers one calls the step function itself, as LBFGS does; make their steps "
        "one by one: step(optimizer, batch, train_step)");
  }
}

void Guard::State::begin(const guard::BatchTensors& batch, const StepCall& call) {
  if (snapshots.empty() && step == 0) snapshots.take(step);
  began = {};
  began.batch = batch;
  batch_versions.clear();
  for (const at::Tensor& tensor : batch) batch_versions.push_back(guard::version_of(tensor));
  if (writes_batch) {
    for (at::Tensor& tensor : began.batch) tensor = guard::unseen_copy(tensor);
  }
  began.parameters = held;
  began.names = names;
  buffers.renew();
  began.random = guard::RandomState::now();
  left_over.begin(held);
  Optimizers of;
  for (GuardedOptimizer* one : steps) of.emplace_back(one->optimizer);
  program.begin(call, std::move(of));
}

guard::StepCheck::Answer Guard::State::look(GuardedOptimizer& one, const at::Tensor& loss) {
  guard::Before before{one.held, one.names, hyperparameters_of(one.optimizer), number_of(loss).value_or(0)};
  before.lr = before.hyperparameters.empty() ? ClipRecord::kUnknown : before.hyperparameters.front().value;
  return one.check.before(before);
}

void Guard::State::note_clip(const guard::StepCheck::Answer& answer) {
  if (!answer.clip || !clips_anything(options)) return;
  auto action = watch.measured(*answer.clip);
  if (action && clips++ < guard::kMostClips) actions.push_back(std::move(*action));
}

// What the scaler's own check finds it skips by itself.
bool Guard::State::left_to_scaler(const guard::StepCheck::Answer& answer) const {
  return options.scaler && options.scaler->enabled() && answer.finding.kind == guard::Kind::gradient;
}

void Guard::State::make(const guard::BatchTensors& batch, at::Tensor& loss, GuardFault& fault) {
  if (needs_closure(steps.front()->optimizer)) return make_with_closure(batch, loss, fault);
  loss = program.call(batch);
  const bool scales = options.scaler && options.scaler->enabled();
  std::vector<guard::StepCheck::Answer> answers;
  for (GuardedOptimizer* one : steps) {
    if (scales) options.scaler->unscale_(one->optimizer);
    answers.push_back(look(*one, loss));
    const Finding& finding = answers.back().finding;
    if (!finding.faulty() || fault.finding.faulty() || left_to_scaler(answers.back())) continue;
    fault.finding = finding;
    fault.at = one;
  }
  const bool faulty = fault.finding.faulty();
  if (faulty && options.on_fault != OnFault::warn) return refuse(loss);
  for (const auto& answer : answers) note_clip(answer);
  std::vector<GuardedOptimizer*> unbounded;
  for (GuardedOptimizer* one : steps) {
    if (!shares_parameters && one->check.is_bounded(update_numbers(one->optimizer))) continue;
    unbounded.push_back(one);
  }
  if (options.undo_step && !unbounded.empty()) program.make_copy();
  write(loss);
  if (faulty) return;
  for (GuardedOptimizer* one : steps) {
    const bool all = guard::reads_anyway(one->made++, step, options.snapshot_every);
    if (!all && std::find(unbounded.begin(), unbounded.end(), one) == unbounded.end()) continue;
    fault.finding = look_at_result(*one, all);
    fault.written = fault.finding.faulty();
    fault.at = one;
    if (fault.written) return;
  }
}

void Guard::State::refuse(const at::Tensor& loss) {
  for (GuardedOptimizer* one : steps) {
    watch.refused();
    watch.step(one->optimizer, loss, [] {});
  }
  if (options.scaler) options.scaler->update();
}

void Guard::State::write(const at::Tensor& loss) {
  for (GuardedOptimizer* one : steps) {
    watch.step(one->optimizer, loss, [&] {
      if (!options.scaler) return void(one->optimizer.step());
      if (!options.scaler->step(one->optimizer)) watch.refused();
    });
  }
  if (options.scaler) options.scaler->update();
}

// `all`: also what the watch has seen the optimizer write.
Finding Guard::State::look_at_result(GuardedOptimizer& one, bool all) {
  std::vector<guard::HeldTensor> tensors;
  for (std::size_t i = 0; i < one.held.size(); ++i) {
    tensors.push_back({one.held[i], guard::Held::parameter, one.names[i]});
  }
  for (auto& [name, parameter, tensor] : state_tensors(one.optimizer)) {
    tensors.push_back({tensor, guard::held_as(name), std::string(name) + " of " + one.names[parameter]});
  }
  const auto seen = [&](const at::Tensor& tensor) { return watch.wrote_finite(tensor); };
  if (all || !writes_by_ops_only(one.optimizer)) return one.check.after(tensors);
  return one.check.after(tensors, seen);
}

void Guard::State::make_with_closure(const guard::BatchTensors& batch, at::Tensor& loss, GuardFault& fault) {
  GuardedOptimizer& one = *steps.front();
  watch.step(one.optimizer, {}, [&] {
    one.optimizer.step([&] {
      at::Tensor given = program.call(batch);
      if (!loss.defined()) loss = given;
      auto answer = look(one, given);
      if (answer.finding.faulty() && !fault.finding.faulty()) fault.finding = answer.finding;
      return given;
    });
  });
  if (!fault.finding.faulty()) fault.finding = look_at_result(one, true);
  fault.written = fault.finding.faulty();
  fault.at = &one;
}

// Of several optimizers that take turns, not all were read in this step.
bool Guard::State::all_is_finite() {
  std::vector<at::Tensor> tensors = held;
  for (const GuardedOptimizer& one : optimizers) {
    for (StateTensor& state : state_tensors(one.optimizer)) tensors.push_back(std::move(state.tensor));
  }
  return guard::all_finite(tensors);
}

// Of a step in which nothing was wrong.
void Guard::State::end(const guard::BatchTensors& batch) {
  left_over.end(held);
  if (looked_into.any()) memory.remember(batch);
  policy.healthy();
  if (++step % options.snapshot_every == 0 && all_is_finite()) snapshots.take(step);
}

}  // namespace firstfault
