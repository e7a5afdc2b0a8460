// Watch from C++: the numbers of its rows, LibTorch's optimizers, faults explained, harmlessness.
#include "firstfault/live/watch.h"

#include <gtest/gtest.h>

#include <filesystem>

#include <sys/wait.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <unistd.h>

#include "firstfault/base/error.h"
#include "firstfault/live/session.h"
#include "firstfault/record/read_run.h"

namespace firstfault {
namespace {

namespace nn = torch::nn;

nn::Sequential net() {
  torch::manual_seed(0);
  return nn::Sequential(nn::Linear(6, 8), nn::Tanh(), nn::Linear(8, 1));
}

at::Tensor loss_of(nn::Sequential& model, const at::Tensor& x) {
  return torch::mse_loss(model->forward(x), x.sum(1, true));
}

const Health* health_of(const Run& run, const StepRow& row, SiteRole role, const std::string& name) {
  for (std::size_t i = 0; i < row.sites.size(); ++i) {
    const Site& site = run.sites[i];
    if (site.role == role && site.name == name && row.sites[i].seen()) return &row.sites[i];
  }
  return nullptr;
}

TEST(Watch, KnowsWhatTheOptimizerWroteAndWhetherThatIsFinite) {
  for (const bool ops : {true, false}) {
    auto model = net();
    torch::optim::SGD optimizer(model->parameters(), 1e-2);
    WatchOptions options;
    options.level = ops ? "ops" : "gradients";
    Watch watch(*model, optimizer, options);
    const auto frozen = torch::ones({3});
    const auto step = [&] {
      optimizer.zero_grad();
      const auto loss = loss_of(model, torch::randn({16, 6}));
      loss.backward();
      watch.step(optimizer, loss);
    };
    step();
    step();
    for (const auto& parameter : model->parameters()) EXPECT_EQ(watch.wrote_finite(parameter), ops);
    EXPECT_FALSE(watch.wrote_finite(frozen));
    optimizer.param_groups()[0].options().set_lr(3e38);
    step();
    step();
    for (const auto& parameter : model->parameters()) EXPECT_FALSE(watch.wrote_finite(parameter));
  }
}

TEST(Watch, RecordsEachStepOfALibTorchOptimizer) {
  auto model = net();
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(1e-2));
  Watch watch(*model, optimizer);
  std::vector<float> losses;
  double norm = 0;
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    const auto loss = loss_of(model, torch::randn({16, 6}));
    loss.backward();
    losses.push_back(loss.item<float>());
    double squares = 0;
    for (const auto& p : model->parameters()) squares += p.grad().square().sum().item<double>();
    norm = std::sqrt(squares);
    watch.step(optimizer, loss);
  }
  const auto run = watch.run();
  ASSERT_EQ(run.rows.size(), 4u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(run.rows[i].step, i);
    EXPECT_FLOAT_EQ(static_cast<float>(run.rows[i].loss), losses[i]);
    EXPECT_EQ(run.rows[i].backwards, 1);
    EXPECT_DOUBLE_EQ(run.rows[i].lr, 1e-2);
    EXPECT_FALSE(run.rows[i].gradients_left_over);
  }
  EXPECT_NEAR(run.rows[3].gradient_norm, norm, 1e-5 * norm);
  const Health* gradient = health_of(run, run.rows[3], SiteRole::gradient, "model.0.weight");
  ASSERT_TRUE(gradient);
  EXPECT_NEAR(gradient->absmax, model->parameters()[0].grad().abs().max().item<float>(), 1e-6);
  const Health* group = health_of(run, run.rows[3], SiteRole::optimizer, "group 0");
  ASSERT_TRUE(group);
  EXPECT_EQ(group->state_steps, 4);
  EXPECT_FLOAT_EQ(group->eps, 1e-8f);
  EXPECT_TRUE(watch.explain().empty());
}

TEST(Watch, NamesTheCauseOfAFault) {
  auto model = net();
  torch::optim::SGD optimizer(model->parameters(), 1e-2);
  Watch watch(*model, optimizer);
  for (int step = 0; step < 6; ++step) {
    optimizer.zero_grad();
    auto x = torch::randn({16, 6});
    auto loss = loss_of(model, x);
    if (step == 4) loss = loss + torch::log(torch::relu(model->forward(x)) * 0).mean();
    loss.backward();
    watch.step(optimizer, loss);
    if (step == 4) break;
  }
  const auto hypotheses = watch.explain();
  ASSERT_FALSE(hypotheses.empty());
  EXPECT_EQ(hypotheses[0].cause, "op_domain");
  EXPECT_EQ(hypotheses[0].op, "aten::log");
  EXPECT_EQ(hypotheses[0].step, 4);
  EXPECT_EQ(hypotheses[0].mechanism, "log_of_nonpositive");
}

TEST(Watch, SeesGradientsThatWereNotCleared) {
  auto model = net();
  torch::optim::SGD optimizer(model->parameters(), 1e-3);
  Watch watch(*model, optimizer);
  for (int step = 0; step < 3; ++step) {
    const auto loss = loss_of(model, torch::randn({16, 6}));
    loss.backward();
    watch.step(optimizer, loss);
  }
  const auto run = watch.run();
  ASSERT_EQ(run.rows.size(), 3u);
  EXPECT_FALSE(run.rows[0].gradients_left_over);
  EXPECT_TRUE(run.rows[1].gradients_left_over && run.rows[2].gradients_left_over);
}

std::vector<at::Tensor> train(bool watched) {
  torch::manual_seed(3);
  nn::Sequential model(nn::Linear(6, 8), nn::BatchNorm1d(8), nn::ReLU(), nn::Dropout(0.5), nn::Linear(8, 1));
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(1e-2));
  std::unique_ptr<Watch> watch;
  if (watched) watch = std::make_unique<Watch>(*model, optimizer);
  std::vector<at::Tensor> results;
  for (int step = 0; step < 20; ++step) {
    optimizer.zero_grad();
    const auto loss = loss_of(model, torch::randn({16, 6}));
    loss.backward();
    watched ? watch->step(optimizer, loss) : void(optimizer.step());
    results.push_back(loss.detach());
  }
  for (const auto& item : model->named_parameters()) results.push_back(item.value().detach());
  for (const auto& item : model->named_buffers()) results.push_back(item.value());
  results.push_back(torch::randn({4}));
  return results;
}

TEST(Watch, LeavesTrainingBitForBitAsItIs) {
  const auto plain = train(false), watched = train(true);
  ASSERT_EQ(plain.size(), watched.size());
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(torch::equal(plain[i], watched[i])) << i;
}

TEST(Watch, AForkedChildLeavesTheFileToTheParent) {
  const auto path = (std::filesystem::temp_directory_path() / ("watch_fork_" + std::to_string(getpid()) + ".ffrun"));
  std::filesystem::remove(path);
  auto model = net();
  torch::optim::SGD optimizer(model->parameters(), 1e-3);
  {
    Watch watch(*model, optimizer, {.run_file = path.string()});
    const auto step = [&] {
      optimizer.zero_grad();
      const auto loss = loss_of(model, torch::randn({16, 6}));
      loss.backward();
      watch.step(optimizer, loss);
    };
    for (int i = 0; i < 3; ++i) step();
    const pid_t child = fork();
    if (child == 0) {
      watch.close(RunState::died);
      _exit(7);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(WEXITSTATUS(status), 7);
    for (int i = 0; i < 3; ++i) step();
  }
  const auto run = read_run(path.string());
  EXPECT_EQ(run.rows.size(), 6u);
  EXPECT_EQ(run.state, RunState::complete);
  std::filesystem::remove(path);
}

TEST(Watch, AStateThatWasLostIsSeenInOptimizersThatCountNoSteps) {
  auto model = net();
  torch::optim::RMSprop optimizer(model->parameters(), torch::optim::RMSpropOptions(1e-3));
  Watch watch(*model, optimizer);
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    const auto loss = loss_of(model, torch::randn({16, 6}));
    loss.backward();
    if (step == 2) optimizer.state().clear();
    watch.step(optimizer, loss);
  }
  watch.close();
  std::vector<bool> lost;
  for (const auto& row : watch.run().rows) lost.push_back(row.reset_state);
  EXPECT_EQ(lost, (std::vector<bool>{false, false, true, false}));
}

TEST(Watch, IsRefusedBesideATraceAndWithUnknownLevels) {
  const Trace trace;
  EXPECT_THROW(Watch(), Error);
  EXPECT_THROW(Watch({.level = "all"}), Error);
  EXPECT_NO_THROW(Watch({.level = "gradients"}));
}

}  // namespace
}  // namespace firstfault
