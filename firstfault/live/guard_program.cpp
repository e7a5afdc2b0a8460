// The program's side of a step: what it begins with, how it is run again, and where it goes on.
#include <algorithm>
#include <utility>

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include "firstfault/live/guard_parts.h"

namespace firstfault {

namespace {

bool calls_closure(const Guard::Optimizers& optimizers) {
  return std::any_of(optimizers.begin(), optimizers.end(),
                     [](torch::optim::Optimizer& one) { return needs_closure(one); });
}

}  // namespace

TrainFlags::TrainFlags(torch::nn::Module& model) {
  flags_.emplace_back(&model, model.is_training());  // it may lie on the stack, where modules() cannot give it
  for (const auto& module : model.modules(/*include_self=*/false)) {
    flags_.emplace_back(module.get(), module->is_training());
  }
}

void TrainFlags::restore() const {
  for (const auto& [module, flag] : flags_) {
    if (module->is_training() != flag) module->train(flag);
  }
}

void GuardedProgram::begin(const StepCall& call, Guard::Optimizers steps) {
  call_ = &call;
  steps_ = std::move(steps);
  has_copy_ = false;
  training_ = TrainFlags(model_);
  if (options_.save) own_before_ = options_.save();
  if (options_.scaler && options_.scaler->enabled()) scale_before_ = options_.scaler->state();
  if (calls_closure(steps_)) {
    make_copy();
  } else if (!options_.undo_step && !calls_closure(optimizers_)) {
    copy_.reset();  // one faulty step's memory is not kept
  }
}

void GuardedProgram::make_copy() {
  if (has_copy_) return;
  if (copy_) {
    copy_->renew();
  } else {
    copy_.emplace(optimizers_);
  }
  has_copy_ = true;
}

void GuardedProgram::pause() {
  if (options_.save) own_after_ = options_.save();
  if (scale_before_) scale_after_ = options_.scaler->state();
}

void GuardedProgram::restore() {
  if (has_copy_) copy_->restore();
  if (scale_before_) options_.scaler->load(*scale_before_);
  training_.restore();
  if (options_.restore) options_.restore(own_before_);
}

at::Tensor GuardedProgram::run(const guard::BatchTensors& batch, bool write) {
  if (calls_closure(steps_)) {  // then it is alone
    at::Tensor first;
    if (before_write) before_write();
    steps_.front().get().step([&] {
      at::Tensor loss = call(batch);
      if (!first.defined()) first = loss;
      return loss;
    });
    return first;
  }
  at::Tensor loss = call(batch);
  if (scale_before_) {
    for (torch::optim::Optimizer& one : steps_) options_.scaler->unscale_(one);
    options_.scaler->update();  // the scale itself is put back
  }
  if (!write) return loss;
  if (before_write) before_write();
  for (torch::optim::Optimizer& one : steps_) one.step();
  return loss;
}

void GuardedProgram::resume() {
  if (has_copy_) copy_->restore();
  if (scale_after_) options_.scaler->load(*scale_after_);
  training_.restore();
  if (options_.restore) options_.restore(own_after_);
}

}  // namespace firstfault
