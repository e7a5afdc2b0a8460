// Parameters drawn anew, as if the model had been initialised in another way.
#include <algorithm>
#include <cmath>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/record_function.h>

#include "firstfault/live/guard/experiments.h"

namespace firstfault::guard {
namespace {

constexpr double kBound = 0.1;  // of a bias that is not finite

}  // namespace

void draw_anew(const std::vector<at::Tensor>& parameters) {
  const at::DisableRecordFunctionGuard unobserved;
  const at::NoGradGuard no_grad;
  const at::Generator generator = at::detail::createCPUGenerator(0);
  for (const at::Tensor& parameter : parameters) {
    if (!parameter.is_floating_point() || parameter.is_meta()) continue;
    if (parameter.dim() >= 2) {
      const auto fan_in = std::max<std::int64_t>(1, parameter.numel() / std::max<std::int64_t>(1, parameter.size(0)));
      parameter.copy_(at::randn(parameter.sizes(), generator).div_(std::sqrt(static_cast<double>(fan_in))));
    } else if (!at::isfinite(parameter).all().item<bool>()) {
      parameter.copy_(at::rand(parameter.sizes(), generator).mul_(2).sub_(1).mul_(kBound));
    }
  }
}

}  // namespace firstfault::guard
