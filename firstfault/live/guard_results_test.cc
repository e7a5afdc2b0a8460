// What optimizers of LibTorch write under a guard, whatever the size of their gradients.
#include <cmath>
#include <random>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "firstfault/live/guard.h"
#include "firstfault/live/guard/copies.h"
#include "firstfault/live/optimizer_copy.h"

namespace firstfault {
namespace {

struct OneParameter : torch::nn::Module {
  OneParameter() { weight = register_parameter("weight", torch::randn({40})); }
  torch::Tensor weight;
};

std::vector<at::Tensor> held_by(torch::optim::Optimizer& optimizer) {
  auto all = parameters_of(optimizer);
  for (const StateTensor& state : state_tensors(optimizer)) all.push_back(state.tensor);
  return all;
}

using Make = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor>, double)>;

template <class Optimizer, class Options>
Make maker(const std::function<Options(double)>& options) {
  return [=](std::vector<torch::Tensor> parameters, double lr) {
    return std::make_unique<Optimizer>(std::move(parameters), options(lr));
  };
}

void leaves_only_finite_numbers(const Make& make, bool squares) {
  namespace optim = torch::optim;
  std::mt19937 numbers(7);
  std::uniform_real_distribution<double> rate(-4, 4);
  const double sizes[] = {1, 1, 1e5, 1e9, 1e14, 1e17, 1e18, 1e19, 1e25, 1e38};
  int undone = 0, made = 0;
  torch::manual_seed(3);
  for (int run = 0; run < 10; ++run) {
    OneParameter module;
    const auto optimizer = make({module.weight}, std::pow(10, rate(numbers)));
    GuardOptions options{.on_fault = OnFault::skip, .undo_step = true, .replays = 0};
    options.max_consecutive_skips = 1'000'000;
    options.watch.level = "gradients";
    Guard guard(module, *optimizer, options);
    for (int step = 0; step < 24; ++step) {
      const auto gradient = torch::randn({40}).clamp(-3, 3) * sizes[numbers() % std::size(sizes)];
      const auto before = guard::bits_of(held_by(*optimizer));
      const auto known = guard.actions().size();
      guard.step(guard::BatchTensors{}, [&](const guard::BatchTensors&) {
        module.weight.mutable_grad() = gradient.clone();
        return torch::zeros({});
      });
      for (const at::Tensor& tensor : held_by(*optimizer)) ASSERT_TRUE(tensor.isfinite().all().item<bool>());
      if (guard.actions().size() == known) {
        ++made;
        continue;
      }
      ++undone;
      ASSERT_EQ(guard::bits_of(held_by(*optimizer)), before);
    }
  }
  EXPECT_GT(made, 60);
  EXPECT_TRUE(undone > 0 || !squares);
}

TEST(GuardResults, StepsOfAnySizeLeaveOnlyFiniteNumbersBehind) {
  namespace optim = torch::optim;
  leaves_only_finite_numbers(maker<optim::SGD, optim::SGDOptions>([](double lr) {
                               return optim::SGDOptions(lr).momentum(0.9).nesterov(true).weight_decay(0.1);
                             }),
                             false);
  leaves_only_finite_numbers(
      maker<optim::Adam, optim::AdamOptions>([](double lr) { return optim::AdamOptions(lr).weight_decay(0.1); }), true);
  leaves_only_finite_numbers(maker<optim::AdamW, optim::AdamWOptions>(
                                 [](double lr) { return optim::AdamWOptions(lr).weight_decay(2).amsgrad(true); }),
                             true);
  leaves_only_finite_numbers(
      maker<optim::RMSprop, optim::RMSpropOptions>([](double lr) { return optim::RMSpropOptions(lr).momentum(0.5); }),
      true);
  leaves_only_finite_numbers(
      maker<optim::RMSprop, optim::RMSpropOptions>([](double lr) { return optim::RMSpropOptions(lr).centered(true); }),
      true);
  leaves_only_finite_numbers(
      maker<optim::Adagrad, optim::AdagradOptions>([](double lr) { return optim::AdagradOptions(lr); }), true);
}

TEST(GuardResults, WhatSomebodyElseWritesIsReadSoonAndNoSnapshotHoldsIt) {
  OneParameter module;
  torch::optim::Adam optimizer({module.weight}, torch::optim::AdamOptions(0.1));
  GuardOptions options{.on_fault = OnFault::skip, .snapshot_every = 5};
  options.watch.level = "gradients";
  Guard guard(module, optimizer, options);
  const auto step = [&] {
    guard.step(guard::BatchTensors{}, [&](const guard::BatchTensors&) {
      module.weight.mutable_grad() = torch::ones({40});
      return torch::zeros({});
    });
  };
  for (int i = 0; i < 11; ++i) step();
  module.weight.data_ptr<float>()[3] = std::nanf("");
  int steps = 0;
  while (guard.actions().empty() && steps < 20) step(), ++steps;
  EXPECT_LE(steps, 8);
  ASSERT_EQ(guard.actions().size(), 1u);
  EXPECT_EQ(guard.actions()[0].fault, "result");
  EXPECT_TRUE(module.weight.isfinite().all().item<bool>());
}

TEST(GuardResults, ATensorOfTheStateIsNamedWithItsParameter) {
  OneParameter module;
  torch::optim::Adam optimizer({module.weight}, torch::optim::AdamOptions(0.1));
  Guard guard(module, optimizer, {.on_fault = OnFault::skip, .undo_step = true});
  guard.step(guard::BatchTensors{}, [&](const guard::BatchTensors&) {
    module.weight.mutable_grad() = torch::full({40}, 1e25);
    return torch::zeros({});
  });
  ASSERT_EQ(guard.actions().size(), 1u);
  EXPECT_NE(guard.actions()[0].reason.find("'exp_avg_sq of model.weight'"), std::string::npos)
      << guard.actions()[0].reason;
}

TEST(GuardResults, ParametersThatJoinAreGuardedAndNamed) {
  torch::manual_seed(0);
  torch::nn::Linear first(4, 4), late(4, 1);
  torch::nn::Sequential net(first, late);
  torch::optim::Adam optimizer(first->parameters(), torch::optim::AdamOptions(0.01));
  GuardOptions options{.on_fault = OnFault::skip, .undo_step = true, .replays = 0};
  options.watch.level = "gradients";
  Guard guard(*net, optimizer, options);
  const auto step = [&](double scale) {
    guard.step(guard::BatchTensors{}, [&](const guard::BatchTensors&) {
      optimizer.zero_grad();
      auto loss = net->forward(torch::ones({2, 4})).mean();
      loss.backward();
      late->bias.mutable_grad() = torch::full({1}, scale);
      return loss;
    });
  };
  for (int i = 0; i < 12; ++i) {
    if (i == 3) optimizer.add_param_group(torch::optim::OptimizerParamGroup(late->parameters()));
    step(1);
  }
  EXPECT_TRUE(guard.actions().empty());
  step(std::nan(""));
  ASSERT_EQ(guard.actions().size(), 1u);
  EXPECT_EQ(guard.actions()[0].fault, "gradient");
  EXPECT_NE(guard.actions()[0].reason.find("'model.1.bias'"), std::string::npos) << guard.actions()[0].reason;
  EXPECT_TRUE(late->bias.isfinite().all().item<bool>());
  step(1e25);  // its square is Inf
  ASSERT_EQ(guard.actions().size(), 2u);
  EXPECT_NE(guard.actions()[1].reason.find("'exp_avg_sq of model.1.bias'"), std::string::npos)
      << guard.actions()[1].reason;
}

}  // namespace
}  // namespace firstfault
