// One step under guard: what is looked at before the optimizer writes, and after it.
#include <map>

#include <ATen/record_function.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include "firstfault/guard/limits.h"
#include "firstfault/live/guard_parts.h"
#include "firstfault/live/measure/scan.h"

namespace firstfault {

using guard::Finding;

namespace {

GuardClip clip_of(const GuardOptions& options) {
  GuardClip clip;
  clip.max_norm = options.max_norm, clip.adaptive = options.adaptive;
  clip.clip_value = options.clip_value, clip.clip_factor = options.clip_factor;
  return clip;
}

bool clips_anything(const GuardOptions& options) {
  return options.max_norm > 0 || options.adaptive || options.clip_value > 0 || options.clip_factor > 0;
}

double number_of(const at::Tensor& loss) {
  if (!loss.defined() || loss.numel() != 1) return 0;
  const at::DisableRecordFunctionGuard unobserved;
  return loss.is_cpu() ? measure::value_at(loss, 0) : loss.detach().to(at::kCPU, at::kDouble).item<double>();
}

}  // namespace

Guard::State::State(torch::nn::Module& module, torch::optim::Optimizer& of, GuardOptions given)
    : model(module),
      optimizer(of),
      options(std::move(given)),
      watch(module, of, options.watch),
      check(clip_of(options), options.spike),
      policy({options.on_fault, options.max_consecutive_skips, options.after_skips, options.max_rollbacks}),
      held(parameters_of(of)),
      usual(hyperparameters_of(of)),
      buffers(module.buffers()),
      snapshots(module, of, options),
      program(module, of, options),
      looked_into(options.experiments, options.replays) {
  std::map<const c10::TensorImpl*, std::string> known;
  for (const auto& item : module.named_parameters()) known[item.value().unsafeGetTensorImpl()] = "model." + item.key();
  for (std::size_t i = 0; i < held.size(); ++i) {
    const auto found = known.find(held[i].unsafeGetTensorImpl());
    names.push_back(found == known.end() ? "parameter " + std::to_string(i) : found->second);
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
  program.begin(call);
}

guard::StepCheck::Answer Guard::State::look(const at::Tensor& loss) {
  guard::Before before{held, names, hyperparameters_of(optimizer), number_of(loss)};
  before.lr = before.hyperparameters.empty() ? ClipRecord::kUnknown : before.hyperparameters.front().value;
  return check.before(before);
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

Finding Guard::State::make(const guard::BatchTensors& batch, at::Tensor& loss, bool& written) {
  if (needs_closure(optimizer)) return make_with_closure(batch, loss, written);
  loss = program.call(batch);
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
  Finding finding = look_at_result();
  written = finding.faulty();
  return finding;
}

Finding Guard::State::look_at_result() {
  std::vector<at::Tensor> results = held;
  auto all_names = names;
  for (at::Tensor& tensor : state_tensors(optimizer)) {
    results.push_back(std::move(tensor));
    all_names.emplace_back("the optimizer's state");
  }
  return guard::check_result(results, all_names);
}

Finding Guard::State::make_with_closure(const guard::BatchTensors& batch, at::Tensor& loss, bool& written) {
  Finding finding;
  watch.step(optimizer, {}, [&] {
    optimizer.step([&] {
      at::Tensor one = program.call(batch);
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

// Of a step in which nothing was wrong.
void Guard::State::end(const guard::BatchTensors& batch) {
  left_over.end(held);
  if (looked_into.any()) memory.remember(batch);
  policy.healthy();
  if (++step % options.snapshot_every == 0) snapshots.take(step);
}

}  // namespace firstfault
