#include "firstfault/live/guard/step_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/stack.h>
#include <ATen/record_function.h>

#include "firstfault/base/numbers.h"
#include "firstfault/live/measure/scan.h"

namespace firstfault::guard {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();
constexpr std::size_t kNamed = 3;  // parameters that a sentence names

std::string text_of(const BadGradient& bad) {
  std::string text =
      "gradient of " + (bad.name.empty() ? "parameter " + std::to_string(bad.index) : "'" + bad.name + "'");
  if (bad.counts.total() == 0) return text + " is not finite";
  return text + " holds " + names_of(bad.counts.bits()) + " in " + std::to_string(bad.counts.total()) + " of " +
         std::to_string(bad.elements) + " elements";
}

Finding bad_gradients(const ClipRecord& record, const std::vector<std::string>& names) {
  Finding finding{.kind = Kind::gradient};
  for (const BadGradient& bad : record.nonfinite) {
    const auto at = static_cast<std::size_t>(bad.index);
    finding.names.push_back(at < names.size() ? names[at] : "parameter " + std::to_string(bad.index));
  }
  finding.reason = record.nonfinite.empty() ? "a gradient is not finite" : text_of(record.nonfinite.front());
  if (record.nonfinite.size() > 1) finding.reason += ", and " + std::to_string(record.nonfinite.size() - 1) + " more";
  return finding;
}

Finding bad_hyperparameter(const std::vector<Hyperparameter>& all) {
  Finding finding;
  for (const Hyperparameter& one : all) {
    if (std::isfinite(one.value) && !vanishes(one)) continue;
    finding.kind = Kind::hyperparameter;
    finding.names.push_back(one.name);
    if (!finding.reason.empty()) continue;
    finding.reason = one.name + " is " + show_number(one.value);
    if (vanishes(one)) finding.reason += ", which is 0 in the dtype of what it is added to";
  }
  return finding;
}

bool holds_numbers(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.is_meta() && (tensor.is_floating_point() || tensor.is_complex());
}

// Of tensors on other devices, by dtype: the infinity norm is finite exactly where all elements are.
void look_on_device(const std::vector<at::Tensor>& tensors, const std::vector<std::size_t>& places,
                    std::vector<bool>& finite) {
  std::map<std::pair<at::ScalarType, at::Device>, std::vector<std::size_t>, decltype([](const auto& a, const auto& b) {
             return std::tuple(a.first, a.second.type(), a.second.index()) <
                    std::tuple(b.first, b.second.type(), b.second.index());
           })>
      groups;
  for (std::size_t i = 0; i < tensors.size(); ++i) groups[{tensors[i].scalar_type(), tensors[i].device()}].push_back(i);
  for (const auto& [key, members] : groups) {
    std::vector<at::Tensor> list;
    for (const auto i : members) list.push_back(tensors[i].detach());
    const auto norms = at::stack(at::_foreach_norm(list, kNoLimit));
    const auto fine = at::isfinite(norms).to(at::kCPU);
    for (std::size_t i = 0; i < members.size(); ++i) finite[places[members[i]]] = fine.const_data_ptr<bool>()[i];
  }
}

// No op on the CPU; elsewhere one synchronisation per device and dtype. `seen` is called with how large each is, by its
// place, where that is known, in memory.
template <class Seen>
std::vector<bool> finite_ones(const std::vector<at::Tensor>& tensors, Seen&& seen) {
  std::vector<bool> finite(tensors.size(), true);
  std::vector<at::Tensor> elsewhere;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!holds_numbers(tensors[i]) || tensors[i].sym_numel() == 0) continue;
    const at::Tensor values = measure::explicit_values(tensors[i]);
    const at::Tensor& numbers = values.defined() ? values : tensors[i];
    const measure::Looked looked = measure::look(numbers);
    finite[i] = looked.bits == kFinite;
    seen(i, looked);
    if (measure::can_scan(numbers)) continue;
    if (numbers.layout() == at::kStrided && numbers.numel() > 0) {
      elsewhere.push_back(numbers);
      places.push_back(i);
    }
  }
  if (!elsewhere.empty()) look_on_device(elsewhere, places, finite);
  return finite;
}

Finding bad_results(const std::vector<std::string>& names) {
  if (names.empty()) return {};
  Finding finding{
      .kind = Kind::result, .reason = "the optimizer wrote values that are not finite into ", .names = names};
  for (std::size_t i = 0; i < std::min(names.size(), kNamed); ++i) {
    finding.reason += (i ? ", '" : "'") + names[i] + "'";
  }
  if (names.size() > kNamed) finding.reason += " and " + std::to_string(names.size() - kNamed) + " more";
  return finding;
}

AdaptiveClipOptions adaptive_options(const GuardClip& clip) {
  AdaptiveClipOptions options;
  options.z = clip.adaptive_z;
  if (clip.max_norm > 0) options.max_norm = clip.max_norm;
  return options;
}

}  // namespace

StepCheck::StepCheck(const GuardClip& clip, double spike_z)
    : clip_(clip), spike_z_(spike_z), adaptive_(adaptive_options(clip)) {}

ClipRecord StepCheck::clip_gradients(const Before& step) {
  const ClipOptions options{clip_.norm_type, OnNonfinite::skip, step.lr, step.names};
  if (clip_.adaptive) return adaptive_.clip(step.parameters, options);
  if (clip_.max_norm > 0 || (clip_.clip_value <= 0 && clip_.clip_factor <= 0)) {
    return clip_grad_norm_(step.parameters, clip_.max_norm > 0 ? clip_.max_norm : kNoLimit, options);
  }
  if (clip_.clip_value > 0) return clip_grad_value_(step.parameters, clip_.clip_value, options);
  return clip_grad_units_(step.parameters, {.clip_factor = clip_.clip_factor}, options);
}

Finding StepCheck::spike(const ClipRecord& record) {
  if (spike_z_ <= 0 || !std::isfinite(record.norm)) return {};
  // A steady norm has a spread of a few per cent: many sigma alone are no spike.
  constexpr double kLeastFactor = 3;
  const bool high = usual_.ready() && usual_.z(record.norm) > spike_z_ && record.norm > kLeastFactor * usual_.median();
  if (!high) {
    usual_.add(record.norm);
    return {};
  }
  return {Kind::spike,
          "gradient norm " + show_number(record.norm) + " where " + show_number(usual_.median()) + " is usual",
          {}};
}

StepCheck::Answer StepCheck::before(const Before& step) {
  const at::DisableRecordFunctionGuard unobserved;
  const at::NoGradGuard no_grad;
  Answer answer;
  gradient_ = kNoLimit;
  const bool bad_loss = !std::isfinite(step.loss);
  answer.finding = bad_loss ? Finding{Kind::loss, "the loss is " + show_number(step.loss), {}}
                            : bad_hyperparameter(step.hyperparameters);
  if (answer.finding.faulty() && !bad_loss) return answer;
  // A spike has to be known before anything is scaled, and with a bad loss nothing is.
  if (spike_z_ > 0 || bad_loss) {
    const ClipOptions options{2, OnNonfinite::skip, step.lr, step.names};
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : step.parameters) gradients.push_back(parameter.grad());
    auto record = GradientNorm(std::move(gradients), options).clip(kNoLimit);
    record.read();
    if (!record.nonfinite.empty() && bad_loss) answer.finding.names = bad_gradients(record, step.names).names;
    if (bad_loss) return answer;
    if (record.nonfinite.empty() && (answer.finding = spike(record)).faulty()) return answer;
  }
  auto record = clip_gradients(step);
  record.read();
  if (!record.nonfinite.empty()) {
    answer.finding = bad_gradients(record, step.names);
  } else {
    // No element is larger than any p-norm of all. Bounds are of float32.
    const bool narrow = std::any_of(step.parameters.begin(), step.parameters.end(),
                                    [](const at::Tensor& parameter) { return parameter.scalar_type() != at::kFloat; });
    if (std::isfinite(record.norm) && !narrow) gradient_ = record.norm;
    answer.clip = std::move(record);
  }
  return answer;
}

bool StepCheck::is_bounded(const std::vector<UpdateNumbers>& groups) {
  return bound_.step(groups, std::exchange(gradient_, kNoLimit));
}

Finding StepCheck::after(const std::vector<HeldTensor>& held, const std::function<bool(const at::Tensor&)>& known) {
  const at::DisableRecordFunctionGuard unobserved;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> tensors;
  std::vector<const HeldTensor*> read;
  for (const HeldTensor& one : held) {
    if (known && known(one.tensor)) continue;
    tensors.push_back(one.tensor);
    read.push_back(&one);
  }
  HeldSizes sizes;
  const auto finite = finite_ones(tensors, [&](std::size_t i, const measure::Looked& looked) {
    sizes.add(read[i]->what, looked.largest, looked.signs);
  });
  std::vector<std::string> bad;
  for (std::size_t i = 0; i < read.size(); ++i) {
    if (!finite[i]) bad.push_back(read[i]->name);
  }
  bound_.read(bad.empty() && read.size() == held.size() ? sizes : HeldSizes::unknown());
  return bad_results(bad);
}

std::vector<std::string> nonfinite_ones(at::TensorList tensors, const std::vector<std::string>& names) {
  const at::DisableRecordFunctionGuard unobserved;
  const at::NoGradGuard no_grad;
  const auto finite = finite_ones(tensors.vec(), [](std::size_t, const measure::Looked&) {});
  std::vector<std::string> bad;
  for (std::size_t i = 0; i < finite.size(); ++i) {
    if (!finite[i]) bad.push_back(i < names.size() ? names[i] : "tensor " + std::to_string(i));
  }
  return bad;
}

bool all_finite(at::TensorList tensors) { return nonfinite_ones(tensors, {}).empty(); }

}  // namespace firstfault::guard
