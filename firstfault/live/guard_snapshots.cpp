// Snapshots in memory: what they hold, and going back to one.
#include <algorithm>

#include <torch/nn/module.h>

#include "firstfault/guard/snapshot_schedule.h"
#include "firstfault/live/guard_parts.h"

namespace firstfault {

void GuardSnapshots::take(std::int64_t step) {
  std::vector<at::Tensor> held, rest = model_.buffers();
  for (torch::optim::Optimizer& one : optimizers_) {
    if (!is_known(one)) return;
    for (at::Tensor& parameter : parameters_of(one)) held.push_back(std::move(parameter));
  }
  for (const at::Tensor& parameter : model_.parameters()) {
    const auto same = [&](const at::Tensor& other) { return other.is_same(parameter); };
    if (std::none_of(held.begin(), held.end(), same)) rest.push_back(parameter);
  }
  all_.push_back({step, OptimizerCopies(optimizers_), guard::Copies(std::move(rest)), guard::RandomState::now(),
                  options_.save ? options_.save() : nullptr});
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

void GuardSnapshots::go_back(const GuardSnapshot& snapshot) {
  snapshot.optimizers.restore();
  snapshot.rest.restore();
  snapshot.random.restore();
  if (options_.restore && snapshot.own) options_.restore(snapshot.own);
  all_.erase(all_.begin() + (&snapshot - all_.data()) + 1, all_.end());
}

}  // namespace firstfault
