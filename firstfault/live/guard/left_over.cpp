#include "firstfault/live/guard/left_over.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>
#include <ATen/record_function.h>

#include "firstfault/live/guard/copies.h"

namespace firstfault::guard {
namespace {

constexpr int kLearn = 4;

}  // namespace

void LeftOver::begin(const std::vector<at::Tensor>& parameters) {
  held_.clear();
  versions_.clear();
  copied_ = false;
  const bool any =
      std::any_of(parameters.begin(), parameters.end(), [](const at::Tensor& p) { return p.grad().defined(); });
  if (!any || habit_ == Habit::replaced) return;
  copied_ = habit_ == Habit::in_place;
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor& gradient = parameter.grad();
    held_.push_back(copied_ ? unseen_copy(gradient) : gradient);
    versions_.push_back(version_of(gradient));
  }
}

bool LeftOver::written_in_place(const std::vector<at::Tensor>& parameters) const {
  for (std::size_t i = 0; i < std::min(held_.size(), parameters.size()); ++i) {
    const bool same = held_[i].defined() && parameters[i].grad().is_same(held_[i]);
    if (same && version_of(held_[i]) != versions_[i]) return true;
  }
  return false;
}

void LeftOver::end(const std::vector<at::Tensor>& parameters) {
  if (!held_.empty() && habit_ == Habit::learning) {
    if (written_in_place(parameters)) {
      habit_ = Habit::in_place;
    } else if (++seen_ >= kLearn) {
      habit_ = Habit::replaced;
    }
  }
  held_.clear();
}

std::vector<at::Tensor> LeftOver::gradients(const std::vector<at::Tensor>& parameters, bool& intact) {
  std::vector<at::Tensor> result(parameters.size());
  intact = true;
  if (held_.empty()) return result;
  const at::DisableRecordFunctionGuard unobserved;
  const at::NoGradGuard no_grad;
  if (!copied_ && written_in_place(parameters)) {
    habit_ = Habit::in_place;
    intact = false;
  }
  for (std::size_t i = 0; i < std::min(held_.size(), result.size()); ++i) {
    const bool written = !copied_ && held_[i].defined() && version_of(held_[i]) != versions_[i];
    result[i] = written ? at::zeros_like(held_[i]) : held_[i];  // most likely it was set to 0 first, in place
  }
  return result;
}

}  // namespace firstfault::guard
