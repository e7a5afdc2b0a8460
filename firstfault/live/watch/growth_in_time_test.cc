// Which nonlinearities make a loop over time, and the factor per time step.
#include "firstfault/live/watch/growth_in_time.h"

#include <cmath>
#include <functional>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>

namespace firstfault::watch {
namespace {

const intercept::OpTraits& op(const char* name) {
  static std::map<std::string, intercept::OpTraits> ops;
  ops[name].name = name;
  return ops[name];
}

at::Tensor weight() { return at::eye(4).requires_grad_(); }

struct Seen {
  at::Tensor output;
  double gradient = 0;  ///< that comes back there
};

bool forward(GrowthsInTime& growths, const std::vector<Seen>& calls, std::int32_t module = 0) {
  bool loop = false;
  for (const Seen& call : calls) loop |= growths.called(module, op("aten::tanh"), call.output, *call.output.grad_fn());
  return loop;
}

void backward(GrowthsInTime& growths, const std::vector<Seen>& calls) {
  growths.begin_backward();
  for (auto call = calls.rbegin(); call != calls.rend(); ++call) {
    const auto& node = *call->output.grad_fn();
    growths.came_back(static_cast<std::int64_t>(node.sequence_nr()), node.thread_id(),
                      at::full({2, 4}, call->gradient, at::kFloat));
  }
}

/// An Elman net over `steps`, whose gradient falls by `factor` from each to the one before.
std::vector<Seen> elman(const at::Tensor& matrix, int steps, double factor) {
  std::vector<Seen> calls;
  auto state = at::zeros({2, 4});
  for (int t = 0; t < steps; ++t) {
    state = at::tanh(at::mm(state, matrix.t()) + 1);
    calls.push_back({state, std::pow(factor, steps - 1 - t)});
  }
  return calls;
}

TEST(GrowthInTime, IsTheFactorPerTimeStepOfALoop) {
  GrowthsInTime growths;
  const auto matrix = weight();
  const auto calls = elman(matrix, 20, 0.5);
  EXPECT_TRUE(forward(growths, calls, 3));
  backward(growths, calls);
  const auto found = growths.take();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].module, 3);
  EXPECT_EQ(found[0].op, &op("aten::tanh"));
  EXPECT_EQ(found[0].weight, matrix.unsafeGetTensorImpl());
  EXPECT_NEAR(found[0].lambda, 0.5, 1e-6);
  EXPECT_EQ(found[0].steps, 20);
  EXPECT_NEAR(found[0].first, std::pow(0.5, 19), 1e-9);
  EXPECT_NEAR(found[0].last, 1, 1e-9);
  EXPECT_NEAR(found[0].fit, 1, 1e-6);
  EXPECT_TRUE(growths.take().empty());
}

TEST(GrowthInTime, CountsZerosApartAndTimeStepsThatNoGradientReachesNotAtAll) {
  GrowthsInTime growths;
  auto calls = elman(weight(), 20, 2);
  for (int t = 0; t < 10; ++t) calls[static_cast<std::size_t>(t)].gradient = t < 5 ? NAN : 0;
  forward(growths, calls);
  backward(growths, calls);
  const auto found = growths.take();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NEAR(found[0].lambda, 2, 1e-6);
  EXPECT_EQ(found[0].steps, 15);
  EXPECT_NEAR(found[0].zeros, 5.0 / 15, 1e-9);
}

TEST(GrowthInTime, OfTwoCallsPerTimeStepIsThatThroughWhichMostComesBack) {
  GrowthsInTime growths;
  const auto matrix = weight();
  auto state = at::zeros({2, 4});
  std::vector<Seen> gates, candidates;
  for (int t = 0; t < 12; ++t) {
    for (int gate = 0; gate < 2; ++gate) {
      gates.push_back({at::sigmoid(at::mm(state, matrix.t())), std::pow(0.5, 11 - t)});
      growths.called(0, op("aten::sigmoid"), gates.back().output, *gates.back().output.grad_fn());
    }
    state = at::tanh(at::mm(state * gates.back().output, matrix.t())) + state * gates[gates.size() - 2].output;
    candidates.push_back({at::tanh(at::mm(state, matrix.t())), std::pow(0.8, 11 - t)});
    forward(growths, {candidates.back()});
    state = state + candidates.back().output;
  }
  backward(growths, gates);
  backward(growths, candidates);
  const auto found = growths.take();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].op, &op("aten::tanh"));
  EXPECT_NEAR(found[0].lambda, 0.8, 1e-6);
  EXPECT_EQ(found[0].steps, 12);
}

TEST(GrowthInTime, IsOneOfEachLayerOfAStack) {
  GrowthsInTime growths;
  const auto lower = elman(weight(), 10, 0.5), upper = elman(weight(), 10, 0.9);
  forward(growths, lower);
  forward(growths, upper);
  backward(growths, upper);
  backward(growths, lower);
  const auto found = growths.take();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_NEAR(found[0].lambda * found[1].lambda, 0.45, 1e-6);
}

TEST(GrowthInTime, IsNothingWhereCallsDoNotDependOnEachOtherOrHaveTheirOwnWeights) {
  GrowthsInTime growths;
  const auto matrix = weight();
  std::vector<Seen> beside, deep;
  auto x = at::ones({2, 4});
  for (int i = 0; i < 12; ++i) {
    beside.push_back({at::tanh(at::mm(at::ones({2, 4}), matrix)), 1});
    x = at::tanh(at::mm(x, weight()));
    deep.push_back({x, 1});
  }
  EXPECT_FALSE(forward(growths, beside, 0));
  EXPECT_FALSE(forward(growths, deep, 1));
  EXPECT_FALSE(forward(growths, elman(matrix, 7, 0.5), 2));
  backward(growths, deep);
  EXPECT_TRUE(growths.take().empty());
}

TEST(GrowthInTime, IsThatOfTheLastMicroBatch) {
  GrowthsInTime growths;
  const auto matrix = weight();
  for (const double factor : {0.5, 0.7}) {
    const auto calls = elman(matrix, 10, factor);
    forward(growths, calls);
    backward(growths, calls);
  }
  const auto found = growths.take();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NEAR(found[0].lambda, 0.7, 1e-6);
  EXPECT_EQ(found[0].steps, 10);
}

}  // namespace
}  // namespace firstfault::watch
