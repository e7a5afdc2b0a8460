#include "firstfault/live/watch/parameters.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "firstfault/live/measure/scan.h"
#include "firstfault/live/measure/statistics.h"

namespace firstfault::watch {
namespace {

struct Sums {
  double squares = 0;
  std::int64_t count = 0;
  double absmax = 0;
  double sum = 0;
  std::int64_t zeros = 0;
  bool bad = false;
};

// What is not finite is NaN in a sample: it counts as nothing.
Sums sums_of(std::span<const float> sample) {
  Sums sums;
  for (const float one : sample) {
    const bool good = one == one;
    const double value = good ? one : 0;
    sums.count += good;
    sums.squares += value * value;
    sums.sum += value;
    sums.absmax = std::max(sums.absmax, std::abs(value));
    sums.zeros += one == 0;
  }
  sums.bad = sums.count < static_cast<std::int64_t>(sample.size());
  return sums;
}

double rms(const Sums& sums) { return sums.count ? std::sqrt(sums.squares / static_cast<double>(sums.count)) : 0; }

float cosine(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return Health::kAbsent;
  double dot = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool good = a[i] == a[i] && b[i] == b[i];
    const double x = good ? a[i] : 0, y = good ? b[i] : 0;
    dot += x * y;
    aa += x * x;
    bb += y * y;
  }
  return aa > 0 && bb > 0 ? static_cast<float>(dot / std::sqrt(aa * bb)) : Health::kAbsent;
}

std::span<float> sample(const at::Tensor& tensor, std::vector<float>& into) {
  into.resize(kSample);
  into.resize(measure::sample_into(tensor, into));
  return into;
}

// Of a sparse gradient its values: the rows that it names. Makes no reference to a gradient that is its own values: a
// lock is held here, and a count that goes from 1 to 2 may take the interpreter's.
template <class Use>
auto with_values(const at::Tensor& gradient, Use&& use) {
  const at::Tensor values = measure::explicit_values(gradient);
  return use(values.defined() ? values : gradient);
}

}  // namespace

void Parameters::set_names(const std::vector<trace::NamedTensor>& tensors) {
  std::vector<Tracked> fresh;
  for (const auto& named : tensors) {
    if (named.role != TensorRole::parameter || !named.tensor.requires_grad()) continue;
    const auto* impl = named.tensor.unsafeGetTensorImpl();
    const auto old = std::find_if(tracked_.begin(), tracked_.end(),
                                  [&](const Tracked& t) { return t.tensor.unsafeGetTensorImpl() == impl; });
    fresh.push_back(old == tracked_.end() ? Tracked{.tensor = named.tensor} : std::move(*old));
    fresh.back().name = named.name;
    fresh.back().module = named.module;
  }
  tracked_ = std::move(fresh);
}

bool Parameters::has_gradient(const at::Tensor& tensor) const {
  if (!tensor.has_storage()) return false;
  const auto* storage = tensor.storage().unsafeGetStorageImpl();
  return std::any_of(tracked_.begin(), tracked_.end(), [&](const Tracked& t) {
    const at::Tensor& gradient = t.tensor.grad();
    return gradient.defined() && gradient.has_storage() && gradient.storage().unsafeGetStorageImpl() == storage;
  });
}

std::size_t Parameters::hold(const std::vector<HeldTensor>& held) {
  const bool any_named = !tracked_.empty();
  std::size_t unnamed = 0;
  for (const HeldTensor& one : held) {
    any_held_ = true;
    const auto* impl = one.tensor.unsafeGetTensorImpl();
    const auto known = std::find_if(tracked_.begin(), tracked_.end(),
                                    [&](const Tracked& t) { return t.tensor.unsafeGetTensorImpl() == impl; });
    if (known != tracked_.end()) {
      known->optimizer = one.optimizer;
      continue;
    }
    tracked_.push_back({.tensor = one.tensor, .name = "unnamed parameter " + std::to_string(unnamed++)});
    tracked_.back().optimizer = one.optimizer;
  }
  return any_named ? unnamed : 0;
}

bool Parameters::belongs(const Tracked& tracked, std::int32_t optimizer) const {
  return optimizer < 0 || tracked.optimizer == optimizer || !any_held_;
}

void Parameters::look_for_left_over() {
  constexpr std::size_t kLook = 64;
  float some[kLook];
  for (Tracked& tracked : tracked_) {
    tracked.left_over = false;
    const at::Tensor& gradient = tracked.tensor.grad();
    if (!gradient.defined()) continue;
    const auto count = with_values(gradient, [&](const at::Tensor& t) { return measure::sample_into(t, some); });
    tracked.left_over = std::any_of(some, some + count, [](float value) { return value != 0; });
  }
}

bool Parameters::left_over(std::int32_t optimizer) const {
  return std::any_of(tracked_.begin(), tracked_.end(),
                     [&](const Tracked& t) { return t.left_over && belongs(t, optimizer); });
}

void Parameters::end_step() {
  for (Tracked& tracked : tracked_) tracked.left_over = false;
}

std::vector<std::string> Parameters::not_held() const {
  std::vector<std::string> names;
  if (!any_held_) return names;
  for (const Tracked& tracked : tracked_) {
    if (tracked.optimizer < 0 && tracked.tensor.grad().defined()) names.push_back(tracked.name);
  }
  return names;
}

void Parameters::before_step(std::int32_t optimizer) {
  for (Tracked& tracked : tracked_) {
    if (belongs(tracked, optimizer)) sample(tracked.tensor, tracked.before);
  }
}

Health Parameters::gradient_health(Tracked& tracked, StepSums& sums) {
  Health health;
  const at::Tensor& gradient = tracked.tensor.grad();
  const auto moments = with_values(gradient, [](const at::Tensor& t) { return measure::moments_of(t); });
  if (moments.elements == 0) return health;
  health.nonfinite = moments.nonfinite;
  health.rms = static_cast<float>(moments.rms());
  health.absmax = static_cast<float>(moments.absmax);
  health.mean = static_cast<float>(moments.mean());
  health.zeros = static_cast<float>(static_cast<double>(moments.zeros) / static_cast<double>(moments.elements));
  sums.gradient_squares += moments.squares;
  sums.bad_gradient |= moments.nonfinite > 0;
  with_values(gradient, [&](const at::Tensor& t) { return sample(t, scratch_).size(); });
  health.flips = cosine(scratch_, tracked.gradient);
  tracked.gradient.swap(scratch_);
  return health;
}

Health Parameters::parameter_health(Tracked& tracked, bool scan, StepSums& sums) {
  Health health;
  const auto now = sample(tracked.tensor, scratch_);
  if (now.empty()) return health;
  const Sums after = sums_of(now);
  const bool look = scan || after.bad;
  health.nonfinite = look && measure::scan(tracked.tensor) ? measure::scan_full(tracked.tensor).counts.total() : 0;
  const auto n = static_cast<double>(std::max<std::int64_t>(after.count, 1));
  health.rms = static_cast<float>(rms(after));
  health.absmax = static_cast<float>(after.absmax);
  health.mean = static_cast<float>(after.sum / n);
  health.zeros = static_cast<float>(static_cast<double>(after.zeros) / n);
  const double weight = static_cast<double>(tracked.tensor.numel()) / n;
  if (tracked.before.size() != now.size()) return health;
  const Sums before = sums_of(tracked.before);
  double moved = 0;
  for (std::size_t i = 0; i < now.size(); ++i) {
    const double by = static_cast<double>(now[i]) - tracked.before[i];
    if (std::isfinite(by)) moved += by * by;
  }
  sums.parameter_squares += before.squares * weight;
  sums.update_squares += moved * weight;
  if (before.squares > 0) health.update = static_cast<float>(std::sqrt(moved / before.squares));
  return health;
}

std::vector<Measured> Parameters::after_step(std::int32_t optimizer, bool scan, StepSums& sums) {
  std::vector<Measured> measured;
  for (std::size_t i = 0; i < tracked_.size(); ++i) {
    Tracked& tracked = tracked_[i];
    if (!belongs(tracked, optimizer)) continue;
    Measured one{.parameter = static_cast<std::int32_t>(i)};
    if (tracked.tensor.grad().defined()) one.gradient = gradient_health(tracked, sums);
    one.parameter_health = parameter_health(tracked, scan, sums);
    measured.push_back(one);
  }
  return measured;
}

}  // namespace firstfault::watch
