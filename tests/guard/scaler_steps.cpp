// A float16 training on the CPU under firstfault::GradScaler: prints the scale before each step, whether the step was
// made, and the sum of the weights. test_grad_scaler.py does the same with torch.amp.GradScaler.
#include <cstdio>

#include <ATen/ops/arange.h>
#include <torch/nn/module.h>
#include <torch/optim/sgd.h>

#include "firstfault/live/guard/grad_scaler.h"

int main() {
  auto weight = (at::arange(64, at::kFloat).reshape({8, 8}) / 64 - 0.5).requires_grad_();
  torch::optim::SGD optimizer({weight}, torch::optim::SGDOptions(1e-3));
  firstfault::GradScaler scaler({.growth_interval = 20});
  for (int step = 0; step < 500; ++step) {
    auto x = (at::arange(256, at::kFloat) * 37 + step * 11).remainder(17).reshape({32, 8}) / 17 - 0.5;
    if (step % 97 == 50) x = x * 1000;
    optimizer.zero_grad();
    const auto y = x.to(at::kHalf).matmul(weight.to(at::kHalf));
    scaler.scale(y.to(at::kFloat).square().mean()).backward();
    const double scale = scaler.get_scale();
    const bool made = scaler.step(optimizer);
    scaler.update();
    std::printf("%.17g %d %.17g\n", scale, made, weight.sum().item<double>());
  }
}
