// The changes that only a Guard can make to a step of its program: numbers, state and precision that are its own.
#include <memory>
#include <utility>

#include <torch/nn/module.h>

#include "firstfault/base/numbers.h"
#include "firstfault/live/guard/experiments/float32.h"
#include "firstfault/live/guard_parts.h"

namespace firstfault {
namespace {

guard::OwnChange change_of(std::string_view name, std::string text) {
  guard::OwnChange own;
  own.change.name = std::string(name);
  own.text = std::move(text);
  return own;
}

}  // namespace

// A learning rate or eps that cannot be, right before the optimizer reads it: a schedule in the step has set it by
// then.
std::optional<guard::OwnChange> Guard::State::repaired_hyperparameters(const GuardedOptimizer& one) {
  const auto sound = sound_hyperparameters(one.optimizer, one.usual);
  if (sound.empty()) return {};
  std::string text;
  for (const auto& [now, value] : sound) {
    text += (text.empty() ? "" : ", ") + now.name + " " + show_number(value) + " instead of " + show_number(now.value);
  }
  auto own = change_of(experiment::kHyperparameter, std::move(text));
  own.change.begin = [this, &one] {
    program.before_write = [&one] {
      set_hyperparameters(one.optimizer, sound_hyperparameters(one.optimizer, one.usual));
    };
  };
  own.change.end = [this] { program.before_write = {}; };
  return own;
}

std::optional<guard::OwnChange> Guard::State::earlier_state() {
  const GuardSnapshot* older = snapshots.oldest_before(step);
  if (older == nullptr) return {};
  program.make_copy();  // put back before each replay, and after the last
  auto own =
      change_of(experiment::kEarlierState, "this batch on the parameters of step " + std::to_string(older->step));
  own.change.begin = [older] { older->optimizers.restore(); };
  return own;
}

std::optional<guard::OwnChange> Guard::State::in_float32(const Run& recorded) {
  std::vector<at::Tensor> own_tensors = held;
  for (const at::Tensor& one : model.parameters()) own_tensors.push_back(one);
  for (const at::Tensor& one : model.buffers()) own_tensors.push_back(one);
  const bool low = guard::InFloat32::any(own_tensors) || guard::InFloat32::any(began.batch);
  if (!low && !holds(recorded, FactKind::low_precision)) return {};
  auto wide = std::make_shared<guard::InFloat32>();
  auto own = change_of(experiment::kFloat32, "parameters, buffers, batch and autocast in float32");
  own.change.batch = [](guard::BatchTensors batch) { return guard::InFloat32::widened(std::move(batch)); };
  own.change.begin = [this, wide, own_tensors] {
    auto tensors = own_tensors;
    for (const GuardedOptimizer& one : optimizers) {
      for (const StateTensor& state : state_tensors(one.optimizer)) tensors.push_back(state.tensor);
    }
    wide->begin(tensors);
  };
  own.change.end = [wide] { wide->end(); };
  own.no_effect = [wide] { return std::string(wide->low() ? "the program casts to float16 or bfloat16 itself" : ""); };
  return own;
}

std::optional<guard::OwnChange> Guard::State::drawn_anew() {
  if (step != 0) return {};
  auto own = change_of(experiment::kInitialised, "parameters drawn anew, with a variance of 1 / fan-in");
  own.change.begin = [this] { guard::draw_anew(held); };
  own.change.writes_parameters = true;
  return own;
}

std::optional<guard::OwnChange> Guard::State::without_left_over() {
  if (!began.has_gradients()) return {};
  auto own = change_of(experiment::kZeroGrad, "gradients set to zero before the step");
  own.change.begin = [this] {
    for (const at::Tensor& parameter : held) parameter.mutable_grad() = at::Tensor();
  };
  return own;
}

std::vector<guard::OwnChange> Guard::State::own_changes(const GuardFault& fault, const Run& recorded) {
  std::vector<guard::OwnChange> all;
  const auto offer = [&](std::optional<guard::OwnChange> one) {
    if (one) all.push_back(std::move(*one));
  };
  if (fault.finding.kind == guard::Kind::hyperparameter) offer(repaired_hyperparameters(*fault.at));
  if (!fault.written) offer(earlier_state());
  offer(in_float32(recorded));
  offer(drawn_anew());
  offer(without_left_over());
  return all;
}

}  // namespace firstfault
