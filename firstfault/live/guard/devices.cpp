// The same arithmetic as on the host, written in ops that leave the numbers where they are.
#include "firstfault/live/guard/devices.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/where.h>

#include "firstfault/live/guard/record.h"

namespace firstfault::guard {
namespace {

// Where the norm of a gradient can be taken in one foreach call with those of others.
using Group = std::pair<at::Device, at::ScalarType>;
struct Order {
  bool operator()(const Group& a, const Group& b) const {
    return std::tuple(a.first.type(), a.first.index(), a.second) <
           std::tuple(b.first.type(), b.first.index(), b.second);
  }
};
using Groups = std::map<Group, std::vector<std::size_t>, Order>;

Groups groups_of(const std::vector<Gradient>& gradients) {
  Groups groups;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].in_memory()) continue;
    groups[{gradients[i].values.device(), gradients[i].values.scalar_type()}].push_back(i);
  }
  return groups;
}

at::Tensor as_real(const at::Tensor& values, double p) {
  if (!values.is_complex()) return values;
  return p == 2 ? at::view_as_real(values.resolve_conj()) : at::abs(values);
}

std::optional<at::ScalarType> widest(at::Device device) {
  return device.is_mps() ? std::nullopt : std::optional(at::kDouble);
}

void zero_where(const std::vector<Gradient>& gradients, const std::vector<std::size_t>& which, const at::Tensor& bad) {
  std::int64_t at = 0;
  for (const auto i : which) own_values(gradients[i]).masked_fill_(bad[at++], 0);
}

void multiply(const std::vector<Gradient>& gradients, const at::Tensor& factor) {
  for (const auto& [group, members] : groups_of(gradients)) {
    std::vector<at::Tensor> tensors;
    for (const auto i : members) {
      tensors.push_back(own_values(gradients[i]));
    }
    at::_foreach_mul_(tensors, factor.to(group.first, type_of_factor(group.second), /*non_blocking=*/true));
  }
}

}  // namespace

at::ScalarType type_of_factor(at::ScalarType type) {
  const auto real = c10::toRealValueType(type);
  return real == at::kDouble ? at::kDouble : at::kFloat;
}

DeviceNorms device_norms(const std::vector<Gradient>& gradients, double p) {
  const at::NoGradGuard no_grad;
  DeviceNorms result;
  std::vector<at::Tensor> stacks;
  for (const auto& [group, members] : groups_of(gradients)) {
    std::vector<at::Tensor> tensors;
    for (const auto i : members) tensors.push_back(as_real(gradients[i].values, p));
    const auto norms = at::stack(at::_foreach_norm(tensors, p, widest(group.first)));
    stacks.push_back(stacks.empty() ? norms : norms.to(stacks.front().device(), /*non_blocking=*/true));
    result.which.insert(result.which.end(), members.begin(), members.end());
  }
  if (!stacks.empty()) result.norms = stacks.size() == 1 ? stacks.front() : at::cat(stacks);
  return result;
}

std::vector<double> fetched(const at::Tensor& numbers) {
  const auto host = numbers.to(at::kCPU, at::kDouble).contiguous();
  const auto* data = host.const_data_ptr<double>();
  return {data, data + host.numel()};
}

ClipRecord clip_on_device(const std::vector<Gradient>& gradients, const DeviceNorms& norms, double max_norm,
                          const ClipOptions& options) {
  const at::NoGradGuard no_grad;
  const bool zero = options.on_nonfinite == OnNonfinite::zero;
  const auto finite = at::isfinite(norms.norms);
  const auto total = at::linalg_vector_norm(at::where(finite, norms.norms, at::Scalar(0.0)), options.norm_type);
  auto factor = total.add(kNormEps).reciprocal().mul(max_norm).clamp_max(1);
  if (zero) {
    zero_where(gradients, norms.which, finite.logical_not());
  } else {
    factor = at::where(finite.all(), factor, at::Scalar(1.0));
  }
  auto later = std::make_shared<ClipRecord::Later>();
  later->norms = norms.norms;
  later->total = total;
  later->options = options;
  for (const auto i : norms.which) later->indices.push_back(gradients[i].index);
  multiply(gradients, factor);
  ClipRecord record;
  record.norm_type = options.norm_type;
  record.limit = max_norm;
  record.later = std::move(later);
  return record;
}

}  // namespace firstfault::guard

namespace firstfault {

void ClipRecord::read() {
  if (!later) return;
  const auto source = std::move(later);
  later = nullptr;
  guard::fill(*this, source->indices, guard::fetched(source->norms), source->options);
  const bool zero = source->options.on_nonfinite == OnNonfinite::zero;
  zeroed = zero && !nonfinite.empty();
  skipped = !zero && !nonfinite.empty();
  if (skipped) return;
  coefficient = std::min(1.0, limit / (norm + guard::kNormEps));
  if (coefficient < 1) clipped_parts = parts;
}

}  // namespace firstfault
