// One trace and many threads: each thread's answers are its own, and starting, stopping and asking disturb nobody.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "firstfault/base/error.h"
#include "firstfault/live/module_names.h"
#include "firstfault/live/session.h"

namespace firstfault {
namespace {

constexpr int kThreads = 4, kRounds = 3;

template <class Body>
void on_threads(Body&& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back([&body, i] { body(i); });
  for (auto& thread : threads) thread.join();
}

/// One forward and backward pass: the loss is 9 * scale, each gradient 6; exactly, as `scale` is a power of two.
bool trains_right(double scale) {
  const at::Tensor weight = at::full({3, 2}, scale / 2).requires_grad_();
  const at::Tensor loss = at::ones({1, 3}).mm(weight).mul(2).pow(2).sum().div(2 * scale);
  loss.backward();
  const at::Tensor gradient = weight.grad();
  return loss.item<double>() == 9 * scale && gradient.eq(6.0).all().item<bool>();
}

/// Threads that train until all_right() or the end of its life.
class Training {
 public:
  Training() {
    for (int i = 0; i < kThreads; ++i) {
      threads_.emplace_back([this, scale = double(1 << i)] {
        while (!stop_) {
          if (!trains_right(scale)) wrong_ = true;
          ++passes_;
        }
      });
    }
  }
  ~Training() { join(); }
  bool all_right() {
    join();
    return !wrong_;
  }
  /// Waits until the threads have done so many more passes together.
  void let_pass(int passes) const {
    for (const int until = passes_ + passes; passes_ < until;) std::this_thread::yield();
  }

 private:
  void join() {
    stop_ = true;
    for (auto& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }
  std::atomic<bool> stop_{false}, wrong_{false};
  std::atomic<int> passes_{0};
  std::vector<std::thread> threads_;
};

at::Tensor bad_in_own_way(int thread, const at::Tensor& zeros) {
  switch (thread) {
    case 0: return zeros.log();
    case 1: return zeros.sub(1).sqrt();
    case 2: return zeros.reciprocal();
    default: return zeros.cos();
  }
}

TEST(Threads, EachThreadsForwardFaultIsFoundInItsOwnOp) {
  const std::string ops[kThreads] = {"aten::log", "aten::sqrt", "aten::reciprocal", ""};
  Trace trace;
  std::atomic<int> right{0};
  on_threads([&](int i) {
    for (int round = 0; round < kRounds; ++round) {
      const at::Tensor weight = at::zeros({4}).requires_grad_();
      const at::Tensor loss = bad_in_own_way(i, weight.mul(2)).sum();
      loss.backward();
      const auto culprits = trace.diagnose(loss).culprits;
      right += ops[i].empty() ? culprits.empty() : culprits.size() == 1 && culprits[0].op == ops[i];
    }
  });
  EXPECT_EQ(right, kThreads * kRounds);
  EXPECT_TRUE(trace.run().warnings.empty());
}

TEST(Threads, EachThreadsBackwardFaultNamesItsOwnForwardOp) {
  const std::string ops[kThreads] = {"aten::sqrt", "aten::rsqrt", "aten::sqrt", "aten::rsqrt"};
  Trace trace;
  std::atomic<int> right{0};
  on_threads([&](int i) {
    for (int round = 0; round < kRounds; ++round) {
      const at::Tensor weight = at::full({4}, i % 2 ? 1e-30 : 0.0).requires_grad_();
      const at::Tensor root = i % 2 ? weight.rsqrt() : weight.sqrt();
      root.sum().backward();
      const auto culprits = trace.diagnose(weight.grad()).culprits;
      right += culprits.size() == 1 && culprits[0].forward_op == ops[i] && culprits[0].phase == Phase::backward;
    }
  });
  EXPECT_EQ(right, kThreads * kRounds);
  EXPECT_TRUE(trace.run().warnings.empty());
}

TEST(Threads, AModuleScopeIsOfItsThread) {
  Trace trace;
  std::vector<std::string> modules{"net"};
  for (int i = 0; i < kThreads; ++i) modules.push_back("net." + std::to_string(i));
  trace.watch({.paths = modules, .tensors = {}, .modules = {}});
  std::atomic<int> right{0};
  on_threads([&](int i) {
    const ModuleScope scope(modules[i + 1]);
    for (int round = 0; round < kRounds; ++round) {
      const auto culprits = trace.diagnose(at::zeros({2}).log()).culprits;
      right += culprits.size() == 1 && culprits[0].module == modules[i + 1];
    }
  });
  EXPECT_EQ(right, kThreads * kRounds);
}

TEST(Threads, StartAndStopWhileOthersTrainDisturbsNobody) {
  Training training;
  Trace trace;
  for (int round = 0; round < kRounds; ++round) {
    training.let_pass(2);
    ASSERT_EQ(trace.diagnose(at::zeros({2}).log()).culprits.at(0).op, "aten::log");
    trace.stop();
    EXPECT_TRUE(trace.run().warnings.empty());
    trace.start();
  }
  EXPECT_TRUE(training.all_right());
}

TEST(Threads, TracesThatComeAndGoWhileOthersTrainLeaveNothingBehind) {
  Training training;
  for (int round = 0; round < kRounds; ++round) {
    Trace trace;
    training.let_pass(2);
    EXPECT_GT(trace.run().ops, 0);
  }
  EXPECT_TRUE(training.all_right());
}

TEST(Threads, QuestionsAreAnsweredWhileOthersTrain) {
  Trace trace;
  Training training;
  for (int round = 0; round < kRounds; ++round) {
    const at::Tensor weight = at::zeros({2}).requires_grad_();
    trace.watch({.paths = {"net"}, .tensors = {{weight, "net.weight", TensorRole::parameter, 0}}, .modules = {}});
    const at::Tensor loss = weight.log().sum();
    EXPECT_TRUE(trace.has_issue(loss));
    EXPECT_EQ(trace.diagnose(loss).culprits.at(0).module, "net");
    EXPECT_TRUE(trace.run().warnings.empty());
    trace.unwatch();
    trace.pause();
    training.let_pass(1);
    trace.resume();
  }
  EXPECT_TRUE(training.all_right());
}

TEST(Threads, QuestionsAreAnsweredWhileAnotherThreadStartsAndStops) {
  Trace trace;
  std::atomic<bool> stop{false};
  std::thread restarting([&] {
    while (!stop) trace.stop(), trace.start();
  });
  for (int round = 0; round < 5 * kRounds; ++round) {
    const at::Tensor loss = at::zeros({2}).log().sum();
    try {
      EXPECT_EQ(trace.diagnose(loss).counts.total(), 1);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::untracked);
    }
    EXPECT_TRUE(trace.run().warnings.empty());
  }
  stop = true;
  restarting.join();
}

}  // namespace
}  // namespace firstfault
