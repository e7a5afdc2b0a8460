// Snapshots in memory: what they hold, and going back to one.
#include <algorithm>

#include <torch/nn/module.h>

#include "firstfault/guard/snapshot_schedule.h"
#include "firstfault/live/guard_parts.h"

namespace firstfault {

void GuardSnapshot::restore(const GuardOptions& options) const {
  optimizers.restore();
  rest.restore();
  random.restore();
  if (scale && options.scaler) options.scaler->load(*scale);
  if (options.restore && own) options.restore(own);
}

std::optional<GuardSnapshot> GuardSnapshots::now(std::int64_t step) const {
  std::vector<at::Tensor> held, rest = model_.buffers();
  for (torch::optim::Optimizer& one : optimizers_) {
    if (!is_known(one)) return {};
    for (at::Tensor& parameter : parameters_of(one)) held.push_back(std::move(parameter));
  }
  for (const at::Tensor& parameter : model_.parameters()) {
    const auto same = [&](const at::Tensor& other) { return other.is_same(parameter); };
    if (std::none_of(held.begin(), held.end(), same)) rest.push_back(parameter);
  }
  GuardSnapshot made{step, OptimizerCopies(optimizers_), guard::Copies(std::move(rest)), guard::RandomState::now()};
  if (options_.scaler && options_.scaler->enabled()) made.scale = options_.scaler->state();
  if (options_.save) made.own = options_.save();
  return made;
}

void GuardSnapshots::take(std::int64_t step) {
  auto taken = now(step);
  if (!taken) return;
  all_.push_back(std::move(*taken));
  const auto sizes = [&] {
    std::vector<guard::HeldSnapshot> each;
    for (const GuardSnapshot& one : all_) each.push_back({one.step, one.bytes()});
    return each;
  };
  while (const auto drop = guard::snapshot_to_drop(sizes(), step, options_.snapshot_bytes)) {
    all_.erase(all_.begin() + static_cast<std::ptrdiff_t>(*drop));
  }
}

const GuardSnapshot* GuardSnapshots::usable(const guard::Policy& policy) const {
  const auto index = policy.snapshot_to_use(all_.size());
  return index ? &all_[*index] : nullptr;
}

const GuardSnapshot* GuardSnapshots::oldest_before(std::int64_t step) const {
  const auto found = std::find_if(all_.begin(), all_.end(), [&](const GuardSnapshot& one) { return one.step < step; });
  return found == all_.end() ? nullptr : &*found;
}

const GuardSnapshot* GuardSnapshots::newest_until(std::int64_t step) const {
  const auto found =
      std::find_if(all_.rbegin(), all_.rend(), [&](const GuardSnapshot& one) { return one.step <= step; });
  return found == all_.rend() ? nullptr : &*found;
}

void GuardSnapshots::go_back(const GuardSnapshot& snapshot) {
  snapshot.restore(options_);
  all_.erase(all_.begin() + (&snapshot - all_.data()) + 1, all_.end());
}

}  // namespace firstfault
