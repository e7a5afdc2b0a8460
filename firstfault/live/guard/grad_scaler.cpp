// The ops of torch.amp.GradScaler, in their order.
#include "firstfault/live/guard/grad_scaler.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include "firstfault/base/error.h"
#include "firstfault/base/numbers.h"
#include "firstfault/live/measure/scan.h"

namespace firstfault {
namespace {

using torch::optim::Optimizer;

template <class Use>
void for_each_gradient(Optimizer& optimizer, Use&& use) {
  std::int64_t index = 0;
  for (auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      if (parameter.grad().defined()) use(index, parameter);
      ++index;
    }
  }
}

at::Tensor number(double value, at::ScalarType type, at::Device device) {
  return at::full({}, value, at::TensorOptions().dtype(type).device(device));
}

at::Tensor values_of(const at::Tensor& parameter) {
  const at::Tensor& gradient = parameter.grad();
  return gradient.layout() == at::kSparse ? gradient._values() : gradient;
}

bool all_finite(const at::Tensor& values) {
  if (measure::can_scan(values)) return measure::scan(values) == kFinite;
  return values.isfinite().all().item<bool>();
}

}  // namespace

GradScaler::GradScaler(GradScalerOptions options) : options_(options) {
  const auto& o = options_;
  if (o.growth_factor > 1 && o.backoff_factor > 0 && o.backoff_factor < 1 && o.init_scale > 0 &&
      o.growth_interval > 0) {
    return;
  }
  throw Error("firstfault: GradScaler: growth_factor is " + show_number(o.growth_factor) +
                  " (above 1), backoff_factor " + show_number(o.backoff_factor) + " (between 0 and 1), init_scale " +
                  show_number(o.init_scale) + " (above 0), growth_interval " + std::to_string(o.growth_interval) +
                  " (at least 1).",
              Error::Kind::bad_value);
}

void GradScaler::name(const torch::nn::Module& module) {
  for (const auto& item : module.named_parameters()) names_[item.value().unsafeGetTensorImpl()] = item.key();
}

void GradScaler::begin(at::Device device) {
  scale_ = number(options_.init_scale, at::kFloat, device);
  growth_tracker_ = number(static_cast<double>(init_tracker_), at::kInt, device);
}

void GradScaler::need_scale(const char* where) const {
  if (scale_.defined()) return;
  throw Error("firstfault: GradScaler: " + std::string(where) +
              " before the first scale(): no loss of this run was scaled.");
}

at::Tensor GradScaler::scale(const at::Tensor& outputs) {
  if (!options_.enabled) return outputs;
  if (!scale_.defined()) begin(outputs.device());
  return outputs.mul(scale_.to(outputs.device(), /*non_blocking=*/true));
}

void GradScaler::unscale_(Optimizer& optimizer) {
  if (!options_.enabled) return;
  need_scale("unscale_()");
  PerOptimizer& state = optimizers_[&optimizer];
  if (state.stage == Stage::unscaled) {
    throw Error("firstfault: GradScaler: unscale_() was called on this optimizer already since the last update().");
  }
  if (state.stage == Stage::stepped)
    throw Error("firstfault: GradScaler: unscale_() after step(); update() comes first.");
  unscale_gradients(optimizer, state);
  state.stage = Stage::unscaled;
}

void GradScaler::unscale_gradients(Optimizer& optimizer, PerOptimizer& state) {
  const at::NoGradGuard no_grad;
  for_each_gradient(optimizer, [](std::int64_t index, const at::Tensor& parameter) {
    if (parameter.grad().scalar_type() != at::kHalf) return;
    throw Error("firstfault: GradScaler: parameter " + std::to_string(index) +
                " has a gradient in float16, which cannot be unscaled without loss; keep parameters in float32.");
  });
  std::vector<std::pair<std::pair<at::Device, at::ScalarType>, std::vector<at::Tensor>>> groups;
  for_each_gradient(optimizer, [&](std::int64_t, const at::Tensor& parameter) {
    const auto values = values_of(parameter);
    const std::pair key(values.device(), values.scalar_type());
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& known) { return known.first == key; });
    if (group == groups.end()) group = groups.insert(groups.end(), {key, {}});
    group->second.push_back(values);
  });
  const auto inverse = scale_.to(at::kDouble).reciprocal().to(at::kFloat);
  state.found.clear();
  for (auto& [key, values] : groups) {
    const auto device = key.first;
    auto found = std::find_if(state.found.begin(), state.found.end(),
                              [&](const at::Tensor& known) { return known.device() == device; });
    if (found == state.found.end()) found = state.found.insert(found, number(0, at::kFloat, device));
    at::_amp_foreach_non_finite_check_and_unscale_(values, *found, inverse.to(device, /*non_blocking=*/true));
  }
}

bool GradScaler::step(Optimizer& optimizer) {
  if (!options_.enabled) {
    optimizer.step();
    return true;
  }
  need_scale("step()");
  PerOptimizer& state = optimizers_[&optimizer];
  if (state.stage == Stage::stepped)
    throw Error("firstfault: GradScaler: step() was called already since the last update().");
  if (state.stage == Stage::ready) unscale_(optimizer);
  if (state.found.empty()) {
    throw Error("firstfault: GradScaler: no parameter of the optimizer has a gradient; call backward() first.");
  }
  double bad = 0;
  for (const at::Tensor& found : state.found) bad += found.item<double>();
  state.stage = Stage::stepped;
  if (bad == 0) {
    optimizer.step();
    row_ = 0;
  } else {
    keep_reason(optimizer);
    ++skips_;
    ++row_;
  }
  ++steps_;
  return bad == 0;
}

void GradScaler::keep_reason(Optimizer& optimizer) {
  const at::NoGradGuard no_grad;
  SkippedStep reason{steps_, get_scale()};
  for_each_gradient(optimizer, [&](std::int64_t index, const at::Tensor& parameter) {
    const auto values = values_of(parameter);
    if (all_finite(values)) return;
    const auto known = names_.find(parameter.unsafeGetTensorImpl());
    reason.nonfinite.push_back(
        {index, known == names_.end() ? "" : known->second, measure::scan_full(values).counts, values.numel()});
  });
  skipped_ = std::move(reason);
}

at::Tensor GradScaler::all_found() const {
  at::Tensor sum;
  for (const auto& [optimizer, state] : optimizers_) {
    for (const at::Tensor& found : state.found) {
      const auto here = found.to(scale_.device(), /*non_blocking=*/true);
      sum = sum.defined() ? sum.add(here) : here;
    }
  }
  return sum;
}

void GradScaler::update() {
  if (!options_.enabled) return;
  need_scale("update()");
  const auto found = all_found();
  if (!found.defined()) throw Error("firstfault: GradScaler: update() before a step() of this iteration.");
  at::_amp_update_scale_(scale_, growth_tracker_, found, options_.growth_factor, options_.backoff_factor,
                         options_.growth_interval);
  if (options_.min_scale > 0) scale_.clamp_min_(options_.min_scale);
  optimizers_.clear();
}

void GradScaler::update(double new_scale) {
  if (!options_.enabled) return;
  need_scale("update()");
  scale_.fill_(new_scale);
  optimizers_.clear();
}

double GradScaler::get_scale() const {
  if (!options_.enabled) return 1;
  return scale_.defined() ? scale_.item<double>() : options_.init_scale;
}

bool GradScaler::stuck() const { return row_ > 0 && skipped_ && skipped_->scale <= options_.min_scale; }

GradScalerState GradScaler::state() const {
  const auto tracker = growth_tracker_.defined() ? growth_tracker_.item<std::int64_t>() : init_tracker_;
  return {get_scale(), options_.growth_factor, options_.backoff_factor, options_.growth_interval, tracker};
}

void GradScaler::load(const GradScalerState& state) {
  if (!options_.enabled) return;
  auto options = options_;
  options.init_scale = state.scale;
  options.growth_factor = state.growth_factor;
  options.backoff_factor = state.backoff_factor;
  options.growth_interval = state.growth_interval;
  options_ = GradScaler(options).options_;  // checked
  init_tracker_ = state.growth_tracker;
  if (scale_.defined()) begin(scale_.device());
  optimizers_.clear();  // whatever their step had come to
}

}  // namespace firstfault
