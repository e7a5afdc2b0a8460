// The program's side of a step: what it begins with, how it is run again, and where it goes on.
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include "firstfault/live/guard_parts.h"

namespace firstfault {

void GuardedProgram::begin(const StepCall& call) {
  call_ = &call;
  copy_.reset();
  training_.clear();
  for (const auto& module : model_.modules()) training_.emplace_back(module.get(), module->is_training());
  if (options_.save) own_before_ = options_.save();
  if (options_.scaler && options_.scaler->enabled()) scale_before_ = options_.scaler->state();
  if (options_.undo_step || needs_closure(optimizer_)) make_copy();
}

void GuardedProgram::pause() {
  if (options_.save) own_after_ = options_.save();
  if (scale_before_) scale_after_ = options_.scaler->state();
}

void GuardedProgram::restore() {
  if (copy_) copy_->restore();
  if (scale_before_) options_.scaler->load(*scale_before_);
  put_flags();
  if (options_.restore) options_.restore(own_before_);
}

at::Tensor GuardedProgram::run(const guard::BatchTensors& batch, bool write) {
  if (needs_closure(optimizer_)) {
    at::Tensor first;
    if (before_write) before_write();
    optimizer_.step([&] {
      at::Tensor loss = call(batch);
      if (!first.defined()) first = loss;
      return loss;
    });
    return first;
  }
  at::Tensor loss = call(batch);
  if (scale_before_) {
    options_.scaler->unscale_(optimizer_);
    options_.scaler->update();  // the scale itself is put back
  }
  if (!write) return loss;
  if (before_write) before_write();
  optimizer_.step();
  return loss;
}

void GuardedProgram::resume() {
  if (copy_) copy_->restore();
  if (scale_after_) options_.scaler->load(*scale_after_);
  put_flags();
  if (options_.restore) options_.restore(own_after_);
}

void GuardedProgram::put_flags() {
  for (const auto& [module, flag] : training_) {
    if (module->is_training() != flag) module->train(flag);
  }
}

}  // namespace firstfault
