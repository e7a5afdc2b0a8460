// Windows of steps under a C++ Guard.
#include <stdexcept>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "firstfault/base/error.h"
#include "firstfault/events/experiment.h"
#include "firstfault/live/guard.h"
#include "firstfault/live/guard/copies.h"
#include "firstfault/live/guard/grad_scaler.h"
#include "firstfault/live/optimizer_copy.h"

namespace firstfault {
namespace {

using Batch = std::pair<torch::Tensor, torch::Tensor>;

Batch regression(std::int64_t step, double scale = 1) {
  auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(step));
  auto x = torch::randn({16, 4}, generator);
  return {x * scale, x.sum(1, true) * scale};
}

struct Program {
  torch::nn::Linear net{nullptr};
  std::unique_ptr<torch::optim::Optimizer> optimizer;

  explicit Program(double lr) {
    torch::manual_seed(0);
    net = torch::nn::Linear(4, 1);
    optimizer = std::make_unique<torch::optim::SGD>(net->parameters(), torch::optim::SGDOptions(lr));
  }
  torch::Tensor operator()(const Batch& batch) {
    optimizer->zero_grad();
    auto loss = (net->forward(batch.first) - batch.second).square().mean();
    loss.backward();
    return loss;
  }
  std::uint64_t bits() {
    auto all = net->parameters();
    for (const auto& state : state_tensors(*optimizer)) all.push_back(state.tensor);
    for (const auto& parameter : net->parameters()) all.push_back(parameter.grad());
    all.push_back(at::globalContext().defaultGenerator(at::kCPU).get_state());
    return guard::bits_of(all);
  }
};

// Steps until one is refused, or so many.
template <class Batches>
void train(Guard& guard, Program& program, Batches&& batches, int steps) {
  try {
    for (int i = 0; i < steps; ++i) guard.step(batches(i), program);
  } catch (const TrainingFault&) {
  }
}

std::string outcome(Guard& guard, std::string_view name) {
  std::string last;
  for (const Experiment& one : experiments_of(guard.run().facts)) {
    if (one.name == name) last = name_of(one.outcome);
  }
  return last;
}

TEST(GuardProve, ALearningRateThatIsTooHighIsProvedAndAllIsAsItWas) {
  Program program(50.0);
  Guard guard(*program.net, *program.optimizer);
  const auto batches = [](std::int64_t step) { return regression(step); };
  train(guard, program, batches, 200);
  ASSERT_FALSE(guard.explain().empty());
  EXPECT_EQ(guard.explain().front().standing, Standing::not_tested);
  const auto before = program.bits();
  const auto steps = guard.steps(), rows = guard.run().steps;
  const auto proved = guard.prove(batches, program);
  EXPECT_EQ(program.bits(), before);
  EXPECT_EQ(guard.steps(), steps);
  EXPECT_EQ(guard.run().steps, rows);
  EXPECT_EQ(proved.front().cause, "lr_too_high");
  EXPECT_EQ(proved.front().standing, Standing::confirmed);
  EXPECT_EQ(outcome(guard, experiment::kWindow), "failed");
  EXPECT_EQ(outcome(guard, experiment::kLowerRate), "cured");
  EXPECT_EQ(outcome(guard, experiment::kZeroGrad), "failed");
  EXPECT_EQ(outcome(guard, experiment::kAveraged), "not applicable");
  EXPECT_EQ(program.optimizer->param_groups()[0].options().get_lr(), 50.0);
}

TEST(GuardProve, DataThatWereNeverScaledAreProved) {
  Program program(0.01);
  Guard guard(*program.net, *program.optimizer);
  const auto batches = [](std::int64_t step) { return regression(step, 1e4); };
  train(guard, program, batches, 200);
  ASSERT_FALSE(guard.explain().empty());
  const auto proved = guard.prove(batches, program);
  EXPECT_EQ(outcome(guard, experiment::kStandardised), "cured");
  EXPECT_EQ(proved.front().cause, "data_scale");
  EXPECT_EQ(proved.front().standing, Standing::confirmed);
}

TEST(GuardProve, DataThatEndLeaveALowerRateUntested) {
  Program program(50.0);
  Guard guard(*program.net, *program.optimizer);
  train(
      guard, program, [](std::int64_t step) { return regression(step); }, 200);
  guard.prove(
      [](std::int64_t step) {
        if (step >= 60) throw std::out_of_range("no more");
        return regression(step);
      },
      program);
  EXPECT_EQ(outcome(guard, experiment::kLowerRate), "not applicable");
}

struct DeepImpl : torch::nn::Module {
  DeepImpl() {
    for (int i = 0; i < 3; ++i) layers.push_back(register_module("l" + std::to_string(i), torch::nn::Linear(64, 64)));
    head = register_module("head", torch::nn::Linear(64, 64));
    torch::NoGradGuard no_grad;
    head->weight.normal_(0, 20);
  }
  torch::Tensor forward(torch::Tensor x) {
    for (auto& layer : layers) x = torch::relu(layer(x));
    return head(x);
  }
  std::vector<torch::nn::Linear> layers;
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Deep);

TEST(GuardProve, WhatHasNoFaultyStepIsProvedByAWatchOverTheWindow) {
  torch::manual_seed(0);
  Deep net;
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(1e-3));
  Guard guard(*net, optimizer);
  const auto batches = [](std::int64_t step) {
    auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(step));
    return Batch(torch::randn({32, 64}, generator), torch::randint(0, 64, {32}, generator, at::kLong));
  };
  const auto train_step = [&](const Batch& batch) {
    optimizer.zero_grad();
    auto loss = torch::nn::functional::cross_entropy(net->forward(batch.first), batch.second);
    loss.backward();
    return loss;
  };
  for (int i = 0; i < 20; ++i) guard.step(batches(i), train_step);
  ASSERT_FALSE(guard.explain().empty());
  EXPECT_EQ(guard.explain().front().cause, "bad_init");
  const auto proved = guard.prove(batches, train_step);
  EXPECT_EQ(outcome(guard, experiment::kInitialised), "cured");
  EXPECT_EQ(proved.front().standing, Standing::confirmed);
  guard.step(batches(20), train_step);  // the watch sees it again
  EXPECT_EQ(guard.run().steps, 21);
}

TEST(GuardProve, AnExceptionOfTheBatchesGoesThroughAndLeavesAllAsItWas) {
  Program program(50.0);
  Guard guard(*program.net, *program.optimizer);
  train(
      guard, program, [](std::int64_t step) { return regression(step); }, 200);
  const auto before = program.bits();
  const auto gone = [](std::int64_t) -> Batch { throw std::runtime_error("the disk is gone"); };
  EXPECT_THROW(guard.prove(gone, program), std::runtime_error);
  EXPECT_EQ(program.bits(), before);
  const auto broken = [](const Batch&) -> torch::Tensor { throw std::runtime_error("the step is broken"); };
  EXPECT_NO_THROW(guard.prove([](std::int64_t step) { return regression(step); }, broken));
  EXPECT_EQ(program.bits(), before);
  EXPECT_TRUE(guard.watch().running());
}

TEST(GuardProve, AHealthyRunHasNothingToProve) {
  Program program(0.05);
  Guard guard(*program.net, *program.optimizer);
  const auto batches = [](std::int64_t step) { return regression(step); };
  train(guard, program, batches, 30);
  EXPECT_TRUE(guard.prove(batches, program).empty());
  EXPECT_EQ(outcome(guard, experiment::kWindow), "");
}

TEST(GuardProve, WhatTheStepThrowsIsNoEndOfTheData) {
  Program program(50.0);
  Guard guard(*program.net, *program.optimizer);
  const auto batches = [](std::int64_t step) { return regression(step); };
  train(guard, program, batches, 200);
  int calls = 0;
  guard.prove(batches, [&](const Batch& batch) {
    if (++calls % 40 == 30) throw std::out_of_range("a table of the program's own");
    return program(batch);
  });
  EXPECT_EQ(outcome(guard, experiment::kLowerRate), "threw");
  EXPECT_EQ(guard.explain().front().standing, Standing::not_tested);
}

TEST(GuardProve, AStepWithoutALossIsToldSo) {
  Program program(50.0);
  Guard guard(*program.net, *program.optimizer);
  const auto batches = [](std::int64_t step) { return regression(step); };
  train(guard, program, batches, 200);
  const auto before = program.bits();
  EXPECT_THROW(guard.prove(batches, [&](const Batch& batch) { return program(batch), torch::Tensor(); }), Error);
  EXPECT_EQ(program.bits(), before);
}

TEST(GuardProve, WindowsTrainAsTheStepsDidAndFlagsAreAsTheyWere) {
  torch::manual_seed(0);
  torch::nn::Sequential net(torch::nn::Linear(4, 8), torch::nn::Dropout(0.5), torch::nn::Linear(8, 1));
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(50.0));
  Guard guard(*net, optimizer);
  const auto batches = [](std::int64_t step) { return regression(step); };
  int in_eval = 0;
  const auto train_step = [&](const Batch& batch) {
    in_eval += !net->is_training();
    optimizer.zero_grad();
    auto loss = (net->forward(batch.first) - batch.second).square().mean();
    loss.backward();
    return loss;
  };
  try {
    for (int i = 0; i < 100; ++i) guard.step(batches(i), train_step);
  } catch (const TrainingFault&) {
  }
  net->eval();
  ASSERT_FALSE(guard.explain().empty());
  guard.prove(batches, train_step);
  EXPECT_EQ(in_eval, 0);
  EXPECT_FALSE(net->is_training());
}

TEST(GuardProve, StepsOfOneOfSeveralOptimizersCannotBeMadeAgainTogether) {
  Program program(0.1);
  torch::optim::SGD bias({program.net->bias}, torch::optim::SGDOptions(0.1));
  torch::optim::SGD weight({program.net->weight}, torch::optim::SGDOptions(0.1));
  Guard guard(*program.net, {weight, bias});
  guard.step(weight, regression(0), program);
  EXPECT_THROW(guard.prove([](std::int64_t step) { return regression(step); }, program), Error);
}

TEST(GuardProve, EachWindowBeginsWithTheScaleThatTheRunHad) {
  Program program(50.0);
  GradScalerOptions scaling;
  scaling.init_scale = 1024, scaling.growth_interval = 3;
  GradScaler scaler(scaling);
  GuardOptions options;
  options.scaler = &scaler;
  Guard guard(*program.net, *program.optimizer, options);
  const auto batches = [](std::int64_t step) { return regression(step); };
  std::vector<double> first_scales;
  int calls = 0;
  const auto scaled_step = [&](const Batch& batch) {
    program.optimizer->zero_grad();
    auto loss = (program.net->forward(batch.first) - batch.second).square().mean();
    scaler.scale(loss).backward();
    ++calls;
    return loss;
  };
  try {
    for (int i = 0; i < 100; ++i) guard.step(batches(i), scaled_step);
  } catch (const TrainingFault&) {
  }
  ASSERT_FALSE(guard.explain().empty());
  const auto scale = scaler.state().scale;
  EXPECT_NE(scale, 1024);
  guard.prove(
      [&](std::int64_t step) {
        if (step == 0) first_scales.push_back(scaler.state().scale);
        return regression(step);
      },
      scaled_step);
  EXPECT_EQ(scaler.state().scale, scale);
  ASSERT_GT(first_scales.size(), 2u);
  for (const double one : first_scales) EXPECT_EQ(one, 1024);
}

}  // namespace
}  // namespace firstfault
