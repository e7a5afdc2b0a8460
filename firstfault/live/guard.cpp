// One optimizer's steps under guard: the same order of things as in Python, where hooks do it.
#include "firstfault/live/guard.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include "firstfault/base/error.h"
#include "firstfault/base/names.h"
#include "firstfault/guard/snapshot_schedule.h"
#include "firstfault/live/guard/batch_memory.h"
#include "firstfault/live/guard/experiments.h"
#include "firstfault/live/guard/grad_scaler.h"
#include "firstfault/live/guard/left_over.h"
#include "firstfault/live/guard/step_check.h"
#include "firstfault/live/measure/scan.h"
#include "firstfault/live/optimizer_copy.h"

namespace firstfault {
namespace {

using guard::Action;
using guard::Finding;
using guard::Kind;

constexpr std::size_t kMostSnapshots = 16;
constexpr std::int64_t kMostClips = 4096;
constexpr int kMostSearches = 16;  // faulty steps of a run that are replayed for their origin alone

struct Snapshot {
  std::int64_t step = 0;
  OptimizerCopy optimizer;
  guard::Copies rest;
  guard::RandomState random;
  std::shared_ptr<void> own;

  std::int64_t bytes() const { return optimizer.bytes() + rest.bytes(); }
};

struct Fault {
  std::int64_t step = 0;
  Finding finding;
  bool written = false;
  std::vector<Origin> origins;
};

// What makes two faulty steps the same one for experiments.
std::string what_began(const Fault& fault) {
  if (fault.origins.empty()) return std::string(name_of(fault.finding.kind));
  const Origin& origin = fault.origins.front();
  return origin.op + '\n' + origin.module + '\n' + origin.mechanism;
}

GuardClip clip_of(const GuardOptions& options) {
  GuardClip clip;
  clip.max_norm = options.max_norm, clip.adaptive = options.adaptive;
  clip.clip_value = options.clip_value, clip.clip_factor = options.clip_factor;
  return clip;
}

double number_of(const at::Tensor& loss) {
  if (!loss.defined() || loss.numel() != 1) return 0;
  const at::DisableRecordFunctionGuard unobserved;
  return loss.is_cpu() ? measure::value_at(loss, 0) : loss.detach().to(at::kCPU, at::kDouble).item<double>();
}

void check(const GuardOptions& options, torch::optim::Optimizer& optimizer) {
  const int ways = (options.max_norm > 0 || options.adaptive) + (options.clip_value > 0) + (options.clip_factor > 0);
  if (ways > 1) {
    throw Error("firstfault: guard: clip by norm, by value or by unit, not by several", Error::Kind::bad_value);
  }
  if (options.snapshot_every < 1) {
    throw Error("firstfault: guard: snapshot_every takes numbers from 1 on", Error::Kind::bad_value);
  }
  const bool goes_back =
      options.on_fault == OnFault::rollback || options.after_skips == OnFault::rollback || options.undo_step;
  if (goes_back && !is_known(optimizer)) {
    throw Error(
        "firstfault: guard: what this optimizer keeps in its state is not known, so that nothing can be rolled "
        "back or undone; use on_fault raise or skip without undo_step, or one of LibTorch's optimizers");
  }
}

}  // namespace

struct Guard::State final : guard::ReplayProgram {
  torch::nn::Module& model;
  torch::optim::Optimizer& optimizer;
  GuardOptions options;
  Watch watch;
  guard::StepCheck check;
  guard::Policy policy;
  std::vector<at::Tensor> held;  // by the optimizer
  std::vector<std::string> names;
  guard::Copies buffers;
  guard::LeftOver left_over;
  std::vector<Snapshot> snapshots;
  std::vector<GuardAction> actions;
  std::int64_t clips = 0, step = 0;
  int searches = 0;
  bool said_inexact = false;
  OnReplay on_replay;
  guard::BatchMemory memory;
  std::set<std::string> looked_into;  // what began the faulty steps that experiments were made on

  // Of the step that is being made.
  const Call* call = nullptr;
  guard::StepState began;
  std::shared_ptr<void> own_before, own_after;
  std::vector<std::pair<torch::nn::Module*, bool>> training;
  std::optional<OptimizerCopy> copy;
  std::optional<GradScalerState> scale_before, scale_after;
  std::vector<std::int64_t> batch_versions;
  bool writes_batch = false;  // then it is copied before each step

  State(torch::nn::Module& m, torch::optim::Optimizer& o, GuardOptions given)
      : model(m),
        optimizer(o),
        options(std::move(given)),
        watch(m, o, options.watch),
        check(clip_of(options), options.spike),
        policy({options.on_fault, options.max_consecutive_skips, options.after_skips, options.max_rollbacks}),
        held(parameters_of(o)),
        buffers(m.buffers()) {
    std::map<const c10::TensorImpl*, std::string> known;
    for (const auto& item : m.named_parameters()) known[item.value().unsafeGetTensorImpl()] = "model." + item.key();
    for (std::size_t i = 0; i < held.size(); ++i) {
      const auto found = known.find(held[i].unsafeGetTensorImpl());
      names.push_back(found == known.end() ? "parameter " + std::to_string(i) : found->second);
    }
  }

  bool clips_anything() const {
    return options.max_norm > 0 || options.adaptive || options.clip_value > 0 || options.clip_factor > 0;
  }

  // The program's side of a replay.
  void restore() override {
    if (copy) copy->restore();
    if (scale_before) options.scaler->load(*scale_before);
    put_flags();
    if (options.restore) options.restore(own_before);
  }
  at::Tensor run(const guard::BatchTensors& batch, bool write) override {
    if (needs_closure(optimizer)) {
      at::Tensor first;
      optimizer.step([&] {
        at::Tensor loss = (*call)(batch);
        if (!first.defined()) first = loss;
        return loss;
      });
      return first;
    }
    at::Tensor loss = (*call)(batch);
    if (scale_before) {
      options.scaler->unscale_(optimizer);
      options.scaler->update();  // the scale itself is put back
    }
    if (write) optimizer.step();
    return loss;
  }
  void resume() override {
    if (copy) copy->restore();
    if (scale_after) options.scaler->load(*scale_after);
    put_flags();
    if (options.restore) options.restore(own_after);
  }
  void put_flags() {
    for (const auto& [module, flag] : training) {
      if (module->is_training() != flag) module->train(flag);
    }
  }

  void begin(const guard::BatchTensors& batch);
  Finding make(const guard::BatchTensors& batch, at::Tensor& loss, bool& written);
  Finding make_with_closure(const guard::BatchTensors& batch, at::Tensor& loss, bool& written);
  guard::StepCheck::Answer look(const at::Tensor& loss);
  bool left_to_scaler(const guard::StepCheck::Answer& answer);
  void note_clip(const guard::StepCheck::Answer& answer);
  void look_at_batch(const guard::BatchTensors& batch);
  void replay(Fault& fault, const at::Tensor& loss);
  void find_origin(Fault& fault);
  bool wants_experiments(const Fault& fault) const;
  std::vector<guard::OwnChange> own_changes(const Fault& fault);
  void look_into(Fault& fault, guard::Replayer& replayer, const guard::ReplayResult& result);
  void say_once(const guard::Exactness& exactness);
  void apply(Fault& fault);
  const Snapshot* usable() const;
  std::int64_t roll_back(const Snapshot& snapshot);
  void take_snapshot();
};

void Guard::State::begin(const guard::BatchTensors& batch) {
  if (snapshots.empty() && step == 0) take_snapshot();
  copy.reset();
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
  training.clear();
  for (const auto& module : model.modules()) training.emplace_back(module.get(), module->is_training());
  if (options.save) own_before = options.save();
  if (options.scaler && options.scaler->enabled()) scale_before = options.scaler->state();
  if (options.undo_step || needs_closure(optimizer)) copy.emplace(optimizer);
}

guard::StepCheck::Answer Guard::State::look(const at::Tensor& loss) {
  guard::Before before{held, names, hyperparameters_of(optimizer), number_of(loss)};
  before.lr = before.hyperparameters.empty() ? ClipRecord::kUnknown : before.hyperparameters.front().value;
  return check.before(before);
}

void Guard::State::note_clip(const guard::StepCheck::Answer& answer) {
  if (!answer.clip || !clips_anything()) return;
  auto action = watch.measured(*answer.clip);
  if (action && clips++ < kMostClips) actions.push_back(std::move(*action));
}

// What the scaler's own check finds it skips by itself.
bool Guard::State::left_to_scaler(const guard::StepCheck::Answer& answer) {
  return options.scaler && options.scaler->enabled() && answer.finding.kind == Kind::gradient;
}

Finding Guard::State::make(const guard::BatchTensors& batch, at::Tensor& loss, bool& written) {
  if (needs_closure(optimizer)) return make_with_closure(batch, loss, written);
  loss = (*call)(batch);
  if (options.scaler && options.scaler->enabled()) options.scaler->unscale_(optimizer);
  auto answer = look(loss);
  const bool refused = answer.finding.faulty() && !left_to_scaler(answer) && options.on_fault != OnFault::warn;
  if (refused) {
    watch.refused();
    watch.step(optimizer, loss, [] {});
    if (options.scaler) options.scaler->update();
    return answer.finding;
  }
  note_clip(answer);
  watch.step(optimizer, loss, [&] {
    if (!options.scaler) return void(optimizer.step());
    if (!options.scaler->step(optimizer)) watch.refused();
    options.scaler->update();
  });
  if (answer.finding.faulty()) return left_to_scaler(answer) ? Finding{} : answer.finding;
  std::vector<at::Tensor> results = held;
  auto all_names = names;
  for (at::Tensor& tensor : state_tensors(optimizer)) {
    results.push_back(std::move(tensor));
    all_names.emplace_back("the optimizer's state");
  }
  Finding finding = guard::check_result(results, all_names);
  written = finding.faulty();
  return finding;
}

Finding Guard::State::make_with_closure(const guard::BatchTensors& batch, at::Tensor& loss, bool& written) {
  Finding finding;
  watch.step(optimizer, {}, [&] {
    optimizer.step([&] {
      at::Tensor one = (*call)(batch);
      if (!loss.defined()) loss = one;
      auto answer = look(one);
      if (answer.finding.faulty() && !finding.faulty()) finding = answer.finding;
      return one;
    });
  });
  if (!finding.faulty()) finding = guard::check_result(held, names);
  written = finding.faulty();
  return finding;
}

void Guard::State::find_origin(Fault& fault) {
  for (Origin& origin : watch.run().origins) {
    if (!origin.sink.empty() && origin.step >= fault.step) fault.origins.push_back(std::move(origin));
  }
}

// A step that writes into its batch cannot be run again the first time.
void Guard::State::look_at_batch(const guard::BatchTensors& batch) {
  if (writes_batch) return;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (guard::version_of(batch[i]) != batch_versions[i]) writes_batch = true;
  }
  began.batch_intact = !writes_batch;
}

// The first faulty step, and later ones that began elsewhere. A spike is finite: there is nothing to cure.
bool Guard::State::wants_experiments(const Fault& fault) const {
  constexpr std::size_t kMostSteps = 4;
  return options.experiments && fault.finding.kind != Kind::spike && looked_into.size() < kMostSteps &&
         !looked_into.count(what_began(fault));
}

std::vector<guard::OwnChange> Guard::State::own_changes(const Fault& fault) {
  std::vector<guard::OwnChange> own;
  const auto older =
      std::find_if(snapshots.begin(), snapshots.end(), [&](const Snapshot& snapshot) { return snapshot.step < step; });
  if (older != snapshots.end() && !fault.written) {
    if (!copy) copy.emplace(optimizer);  // restore() puts it back before each replay, resume() after the last
    guard::Change change;
    change.name = std::string(experiment::kEarlierState);
    change.begin = [older] { older->optimizer.restore(); };
    own.push_back({std::move(change), "this batch on the parameters of step " + std::to_string(older->step)});
  }
  const auto defined = [](const at::Tensor& gradient) { return gradient.defined(); };
  if (std::any_of(began.gradients.begin(), began.gradients.end(), defined)) {
    guard::Change change;
    change.name = std::string(experiment::kZeroGrad);
    change.begin = [this] {
      for (const at::Tensor& parameter : held) parameter.mutable_grad() = at::Tensor();
    };
    own.push_back({std::move(change), "gradients set to zero before the step"});
  }
  return own;
}

void Guard::State::look_into(Fault& fault, guard::Replayer& replayer, const guard::ReplayResult& result) {
  const bool known = !fault.origins.empty();
  looked_into.insert(what_began(fault));
  const Run recorded = watch.run();
  guard::Circumstances given;
  given.step = fault.step;
  given.result = result;
  given.previous = memory.previous();
  given.ranges = memory.ranges();
  given.batches = memory.batches();
  given.raw_scores = std::any_of(recorded.facts.begin(), recorded.facts.end(),
                                 [](const Fact& fact) { return fact.kind == FactKind::raw_scores; });
  given.own = own_changes(fault);
  given.unchanged = std::max(2, options.replays);
  given.max_replays = options.max_replays;
  given.max_seconds = options.max_seconds;
  guard::Experiments done = guard::experiment(replayer, given);
  say_once(done.exactness);
  if (!known) {
    for (Origin& origin : done.exactness.origins) {
      if (!origin.sink.empty()) fault.origins.push_back(std::move(origin));
    }
  }
  // A hyperparameter was refused before it could do harm: then there is nothing to cure.
  if (fault.finding.kind == Kind::hyperparameter && done.exactness.failed == 0) done.made.clear();
  watch.learned(fault.step, known ? std::vector<Origin>() : fault.origins, done.made);
}

void Guard::State::say_once(const guard::Exactness& exactness) {
  if (exactness.exact || !exactness.deterministic || std::exchange(said_inexact, true)) return;
  std::fprintf(stderr, "firstfault: this step cannot be run again exactly, so that no cause is proved: %s\n",
               printable(exactness.why).c_str());
}

void Guard::State::replay(Fault& fault, const at::Tensor& loss) {
  const bool tries = wants_experiments(fault);
  const bool seeks = !tries && options.replays > 0 && fault.origins.empty() && searches++ < kMostSearches;
  const bool wanted = on_replay || tries || seeks;
  if (!wanted || options.on_fault == OnFault::warn || (fault.written && !copy)) return;
  const bool write = fault.written || fault.finding.kind == Kind::hyperparameter;
  if (write && !copy) copy.emplace(optimizer);
  began.buffers = buffers;
  began.gradients = left_over.gradients(held, began.gradients_intact);
  if (write) began.written = guard::Copies(held);
  if (options.save) own_after = options.save();
  if (scale_before) scale_after = options.scaler->state();
  const auto result = guard::result_now(began, loss, fault.written);
  try {
    guard::Replayer replayer(
        began, *this, [&](const auto& body) { return watch.aside(body); }, write);
    if (tries) {
      look_into(fault, replayer, result);
    } else if (seeks) {
      fault.origins = replayer.verify(result, options.replays).origins;
    }
    if (on_replay) on_replay(replayer, result);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "firstfault: step %lld could not be replayed: %s\n", static_cast<long long>(fault.step),
                 printable(error.what()).c_str());
  }
}

const Snapshot* Guard::State::usable() const {
  if (snapshots.empty()) return nullptr;
  // One that was gone back to already and led to the same place is given up where there is an older one.
  return policy.rollbacks() > 0 && snapshots.size() > 1 ? &snapshots[snapshots.size() - 2] : &snapshots.back();
}

std::int64_t Guard::State::roll_back(const Snapshot& snapshot) {
  snapshot.optimizer.restore();
  snapshot.rest.restore();
  snapshot.random.restore();
  if (options.restore && snapshot.own) options.restore(snapshot.own);
  watch.rolled_back();
  const std::int64_t lost = step - snapshot.step;
  const auto kept = static_cast<std::size_t>(&snapshot - snapshots.data()) + 1;
  while (snapshots.size() > kept) snapshots.pop_back();
  return lost;
}

void Guard::State::take_snapshot() {
  if (!is_known(optimizer)) return;
  std::vector<at::Tensor> rest = model.buffers();
  for (const at::Tensor& parameter : model.parameters()) {
    const auto same = [&](const at::Tensor& other) { return other.is_same(parameter); };
    if (std::none_of(held.begin(), held.end(), same)) rest.push_back(parameter);
  }
  snapshots.push_back({step, OptimizerCopy(optimizer), guard::Copies(std::move(rest)), guard::RandomState::now(),
                       options.save ? options.save() : nullptr});
  const auto too_much = [&] {
    std::int64_t bytes = 0;
    for (const Snapshot& one : snapshots) bytes += one.bytes();
    return snapshots.size() > kMostSnapshots || bytes > options.snapshot_bytes;
  };
  while (snapshots.size() > 1 && too_much()) {
    std::vector<std::int64_t> steps;
    for (const Snapshot& one : snapshots) steps.push_back(one.step);
    snapshots.erase(snapshots.begin() + static_cast<std::ptrdiff_t>(guard::snapshot_to_drop(steps, step)));
  }
  if (too_much()) snapshots.clear();  // one alone is larger than the cap
}

void Guard::State::apply(Fault& fault) {
  const Snapshot* back = usable();
  const Action action = policy.faulty({fault.written, copy.has_value(), back != nullptr, back ? step - back->step : 0});
  GuardAction done;
  done.step = fault.step;
  done.fault = name_of(fault.finding.kind);
  done.reason = fault.finding.reason;
  constexpr GuardAction::Kind kinds[] = {GuardAction::Kind::clip, GuardAction::Kind::skip, GuardAction::Kind::rollback,
                                         GuardAction::Kind::warn, GuardAction::Kind::stop};
  done.kind = kinds[static_cast<int>(action)];
  const bool from_snapshot = action == Action::rollback || (fault.written && action != Action::warn && !copy && back);
  if (from_snapshot) {
    done.snapshot = back->step;
    done.lost = roll_back(*back);
  } else if (action != Action::warn) {
    if (fault.written && copy) copy->restore();
    buffers.restore();
  }
  if (fault.written && action != Action::warn) done.undone = from_snapshot ? "snapshot" : copy ? "copy" : "";
  if (action == Action::warn) {
    std::fprintf(stderr, "firstfault: step %lld: %s; the step was made all the same\n",
                 static_cast<long long>(fault.step), printable(done.reason).c_str());
  }
  watch.acted(done);
  actions.push_back(std::move(done));
  if (action != Action::stop) return;
  std::string what = "step " + std::to_string(fault.step) + ": " + fault.finding.reason;
  if (policy.skips_in_a_row() > 0) {
    what += ", after " + std::to_string(policy.skips_in_a_row()) + " steps in a row were skipped";
  }
  ++step;
  throw TrainingFault(what, std::move(fault.origins), watch.explain());
}

Guard::Guard(torch::nn::Module& model, torch::optim::Optimizer& optimizer, GuardOptions options) {
  check(options, optimizer);
  state_ = std::make_unique<State>(model, optimizer, std::move(options));
}

Guard::~Guard() = default;

const std::vector<GuardAction>& Guard::actions() const noexcept { return state_->actions; }
std::int64_t Guard::steps() const noexcept { return state_->step; }
Watch& Guard::watch() noexcept { return state_->watch; }
void Guard::on_replay(OnReplay callback) { state_->on_replay = std::move(callback); }

at::Tensor Guard::make_step(const guard::BatchTensors& batch, const Call& call) {
  State& state = *state_;
  state.call = &call;
  state.begin(batch);
  at::Tensor loss;
  Fault fault;
  fault.step = state.watch.running() ? state.watch.steps() : state.step;
  fault.finding = state.make(batch, loss, fault.written);
  if (!fault.finding.faulty()) {
    state.left_over.end(state.held);
    state.memory.remember(batch);
    state.policy.healthy();
    if (++state.step % state.options.snapshot_every == 0) state.take_snapshot();
    return loss;
  }
  state.look_at_batch(batch);
  state.find_origin(fault);
  state.replay(fault, loss);
  state.apply(fault);
  ++state.step;
  return loss;
}

}  // namespace firstfault
