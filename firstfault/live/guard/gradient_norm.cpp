// Clipping by the global norm.
#include <algorithm>
#include <cmath>

#include "firstfault/base/error.h"
#include "firstfault/live/guard/clip.h"
#include "firstfault/live/guard/devices.h"
#include "firstfault/live/guard/record.h"

namespace firstfault {

namespace {
constexpr const char* kWhere = "clip_grad_norm_";
}

struct GradientNorm::State {
  std::vector<at::Tensor> given;
  ClipOptions options;
  std::vector<guard::Gradient> gradients;
  std::vector<double> norms;  // in the order of `gradients`
  guard::DeviceNorms elsewhere;

  bool all_elsewhere() const { return elsewhere.norms.defined() && elsewhere.which.size() == gradients.size(); }

  void fetch() {
    if (!elsewhere.norms.defined()) return;
    const auto numbers = guard::fetched(elsewhere.norms);
    for (std::size_t i = 0; i < numbers.size(); ++i) norms[elsewhere.which[i]] = numbers[i];
    elsewhere.norms.reset();
  }
};

GradientNorm::GradientNorm(std::vector<at::Tensor> gradients, ClipOptions options) : state_(std::make_unique<State>()) {
  guard::check(0, options, kWhere);
  State& state = *state_;
  state.given = std::move(gradients);
  state.options = std::move(options);
  state.gradients = guard::collect(state.given, state.options.by_aten);
  state.norms = guard::norms_of(state.gradients, state.options.norm_type);
  state.elsewhere = guard::device_norms(state.gradients, state.options.norm_type);
}

GradientNorm::~GradientNorm() = default;
GradientNorm::GradientNorm(GradientNorm&&) noexcept = default;

double GradientNorm::total() {
  state_->fetch();
  const bool zero = state_->options.on_nonfinite == OnNonfinite::zero;
  auto counted = state_->norms;
  if (zero) std::erase_if(counted, [](double norm) { return !std::isfinite(norm); });
  const bool finite = std::all_of(counted.begin(), counted.end(), [](double norm) { return std::isfinite(norm); });
  return finite ? guard::norm_of_norms(counted, state_->options.norm_type) : ClipRecord::kUnknown;
}

std::vector<double> GradientNorm::norms() {
  state_->fetch();
  std::vector<double> result(state_->given.size(), 0);
  for (std::size_t i = 0; i < state_->norms.size(); ++i) {
    result[static_cast<std::size_t>(state_->gradients[i].index)] = state_->norms[i];
  }
  return result;
}

ClipRecord GradientNorm::clip(double max_norm) {
  guard::check(max_norm, state_->options, kWhere);
  State& state = *state_;
  if (state.all_elsewhere() && state.options.on_nonfinite != OnNonfinite::error) {
    auto record = guard::clip_on_device(state.gradients, state.elsewhere, max_norm, state.options);
    guard::tell_listeners(record, state.given);
    return record;
  }
  return clip(max_norm, total());
}

ClipRecord GradientNorm::clip(double max_norm, double total_of_ranks) {
  guard::check(max_norm, state_->options, kWhere);
  State& state = *state_;
  state.fetch();
  ClipRecord record;
  record.limit = max_norm;
  const guard::Measured measured{state.gradients, state.norms, state.options.norm_type};
  guard::fill(record, measured, state.options);
  bool go_on = guard::settle_nonfinite(record, measured, state.options.on_nonfinite, kWhere);
  if (go_on && !std::isfinite(total_of_ranks)) {
    if (state.options.on_nonfinite == OnNonfinite::error) guard::refuse_other_rank(kWhere);
    record.skipped = true;
    go_on = false;
  }
  if (go_on) {
    record.norm = total_of_ranks;
    record.step = state.options.lr * total_of_ranks;
    record.coefficient = std::min(1.0, max_norm / (total_of_ranks + guard::kNormEps));
    if (record.coefficient < 1) {
      guard::scale_all(state.gradients, record.coefficient);
      record.clipped_parts = static_cast<std::int64_t>(state.gradients.size());
    }
  }
  guard::tell_listeners(record, state.given);
  return record;
}

ClipRecord clip_grad_norm_(at::TensorList parameters, double max_norm, const ClipOptions& options) {
  guard::check(max_norm, options, kWhere);
  return GradientNorm(guard::gradients_of(parameters), options).clip(max_norm);
}

}  // namespace firstfault
