// Trace from C++: the same answers as from Python, and nothing of ours in the training.
#include "firstfault/live/session.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "firstfault/base/error.h"
#include "firstfault/live/intercept/observer.h"

namespace firstfault {
namespace {

struct Net : torch::nn::Module {
  torch::nn::Linear first{nullptr}, second{nullptr};
  torch::nn::Dropout dropout{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};

  Net() {
    first = register_module("first", torch::nn::Linear(4, 8));
    norm = register_module("norm", torch::nn::BatchNorm1d(8));
    dropout = register_module("dropout", torch::nn::Dropout(0.25));
    second = register_module("second", torch::nn::Linear(8, 1));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return second->forward(dropout->forward(torch::relu(norm->forward(first->forward(x)))));
  }
};

std::vector<torch::Tensor> train(int steps, Trace* trace) {
  torch::manual_seed(3);
  auto net = std::make_shared<Net>();
  if (trace) trace->watch(*net, "net");
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2));
  std::vector<torch::Tensor> record;
  for (int step = 0; step < steps; ++step) {
    const auto x = torch::randn({6, 4}), y = torch::randn({6, 1});
    optimizer.zero_grad();
    const auto loss = torch::mse_loss(net->forward(x), y);
    loss.backward();
    record.push_back(loss.detach().clone());
    for (const auto& p : net->parameters()) record.push_back(p.grad().clone());
    optimizer.step();
  }
  for (const auto& p : net->parameters()) record.push_back(p.detach().clone());
  for (const auto& b : net->buffers()) record.push_back(b.clone());
  record.push_back(at::detail::getDefaultCPUGenerator().get_state());
  return record;
}

void expect_same(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(torch::equal(a[i], b[i])) << "item " << i;
}

TEST(Trace, FiftyStepsAreTheSameBitForBitTracedAndNot) {
  const auto plain = train(50, nullptr);
  Trace trace;
  expect_same(plain, train(50, &trace));
  const auto run = trace.run();  // Run names a method of the test here
  EXPECT_TRUE(run.origins.empty());
  EXPECT_EQ(run.steps, 50) << "steps of a LibTorch optimizer are counted by its reading gradients and writing";
}

TEST(Trace, NamesTheOpElementSampleAndModuleByParameterOwnership) {
  auto net = std::make_shared<Net>();
  auto x = torch::ones({5, 4});
  x[3] = std::numeric_limits<float>::infinity();
  Trace trace;  // after the fill: an Inf that the traced program itself fills in would be meant
  trace.watch(*net, "net");
  const auto h = net->first->forward(x);
  const auto loss = h.sum() + torch::log(torch::zeros({2})).sum();
  ASSERT_TRUE(trace.has_issue(loss));
  const Diagnosis diagnosis = trace.diagnose(loss);
  ASSERT_EQ(diagnosis.culprits.size(), 2u);
  EXPECT_EQ(diagnosis.culprits[0].phase, Phase::data);
  EXPECT_EQ(diagnosis.culprits[0].module, "net.first");
  EXPECT_EQ(diagnosis.culprits[0].sample, 3);
  EXPECT_EQ(diagnosis.culprits[1].op, "aten::log");
}

TEST(Trace, AFaultInTheLossBelongsToNoModuleButSaysWhatRanBefore) {
  auto net = std::make_shared<Net>();
  Trace trace;
  trace.watch(*net, "net");
  const auto out = net->forward(torch::ones({5, 4}));
  const auto loss = torch::log(out * 0).mean();
  const Origin origin = trace.diagnose(loss).culprits.at(0);
  EXPECT_EQ(origin.op, "aten::log");
  EXPECT_EQ(origin.module, "");
  EXPECT_EQ(origin.after_module, "net.second");
  EXPECT_EQ(origin.sample, 0);
  EXPECT_EQ(origin.mechanism, "log_of_nonpositive");
}

TEST(Trace, AModuleScopeNamesOpsThatReadNoParameter) {
  auto net = std::make_shared<Net>();
  Trace trace;
  trace.watch(*net, "net");
  torch::Tensor bad;
  {
    const ModuleScope scope("net.dropout");
    bad = torch::sqrt(torch::full({2}, -4.0f));
  }
  EXPECT_EQ(trace.diagnose(bad).culprits.at(0).module, "net.dropout");
}

TEST(Trace, ABackwardFaultNamesItsForwardOpAndModule) {
  auto net = std::make_shared<Net>();
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  Trace trace;
  trace.watch(*net, "net");
  const auto norm = net->second->weight.mul(0).pow(2).sum().sqrt();
  norm.backward();
  optimizer.step();
  const auto origins = trace.origins();
  ASSERT_EQ(origins.size(), 1u);
  EXPECT_EQ(origins[0].op, "SqrtBackward0");
  EXPECT_EQ(origins[0].forward_op, "aten::sqrt");
  EXPECT_EQ(origins[0].sink, "gradient of 'net.second.weight'");
  EXPECT_EQ(origins[0].mechanism, "derivative_at_boundary");
}

TEST(Trace, NestingIsAnErrorAndTheFirstTraceGoesOn) {
  Trace trace;
  EXPECT_THROW(Trace{}, Error);
  EXPECT_TRUE(trace.has_issue(torch::log(torch::zeros({1}))));
}

TEST(Trace, ATensorFromBeforeIsUntracked) {
  const auto before = torch::ones({2});
  Trace trace;
  try {
    trace.diagnose(before);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::untracked);
  }
}

TEST(Trace, AFailureInsideACallbackDoesNotReachTheProgram) {
  const auto plain = train(5, nullptr);
  Trace trace;
  intercept::set_fail_point(intercept::FailPoint::op_end);
  const auto observed = train(5, nullptr);
  intercept::set_fail_point(intercept::FailPoint::none);
  expect_same(plain, observed);
  ASSERT_EQ(trace.run().warnings.size(), 1u);
}

TEST(Trace, StepsAreCountedWhereNothingIsWatchedAndTheOptimizerWritesThroughData) {
  auto net = std::make_shared<Net>();
  torch::optim::SGD optimizer(net->parameters(), 0.1);  // writes to p.data()
  Trace trace;
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    auto loss = net->forward(torch::randn({6, 4})).mean();
    if (step == 2) loss = loss + torch::log(loss.detach() * 0);
    loss.backward();
    optimizer.step();
  }
  trace.stop();
  const auto run = trace.run();
  EXPECT_EQ(run.steps, 4);
  ASSERT_FALSE(run.origins.empty());
  EXPECT_EQ(run.origins.front().step, 2);
  EXPECT_EQ(run.origins.front().op, "aten::log");
}

TEST(Trace, StartsAnewAfterAStop) {
  Trace trace;
  torch::log(torch::zeros({1}));
  trace.stop();
  EXPECT_EQ(trace.origins().size(), 1u);
  trace.start();
  EXPECT_TRUE(trace.origins().empty());
}

}  // namespace
}  // namespace firstfault
