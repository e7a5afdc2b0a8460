// Guard for C++ programs: what it refuses, what it leaves untouched, and the replay.
#include "firstfault/live/guard.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "firstfault/base/error.h"
#include "firstfault/events/experiment.h"
#include "firstfault/live/guard/copies.h"
#include "firstfault/live/guard/grad_scaler.h"
#include "firstfault/live/optimizer_copy.h"

namespace firstfault {
namespace {

struct NetImpl : torch::nn::Module {
  NetImpl() {
    a = register_module("a", torch::nn::Linear(5, 8));
    norm = register_module("norm", torch::nn::BatchNorm1d(8));
    b = register_module("b", torch::nn::Linear(8, 3));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return b(torch::dropout(torch::relu(norm(a(x))), 0.3, is_training()));
  }
  torch::nn::Linear a{nullptr}, b{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(Net);

using Batch = std::pair<torch::Tensor, torch::Tensor>;

Batch batch_of(int seed, bool bad = false) {
  auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(seed));
  Batch batch{torch::randn({8, 5}, generator), torch::zeros({8, 3})};
  if (bad) batch.first[2][1] = std::numeric_limits<float>::quiet_NaN();
  return batch;
}

struct Program {
  Net net;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  int calls = 0;

  template <class Optimizer = torch::optim::Adam, class Options = torch::optim::AdamOptions>
  static Program with(const Options& options = Options(1e-2)) {
    torch::manual_seed(0);
    Program program;
    program.net = Net();
    program.optimizer = std::make_unique<Optimizer>(program.net->parameters(), options);
    return program;
  }
  torch::Tensor operator()(const Batch& batch) {
    ++calls;
    optimizer->zero_grad();
    auto loss = (net->forward(batch.first) - batch.second).square().mean();
    loss.backward();
    return loss;
  }
  std::uint64_t bits() {
    auto all = net->parameters();
    for (const auto& buffer : net->buffers()) all.push_back(buffer);
    for (const auto& state : state_tensors(*optimizer)) all.push_back(state.tensor);
    all.push_back(at::globalContext().defaultGenerator(at::kCPU).get_state());
    return guard::bits_of(all);
  }
  std::uint64_t parameter_bits() {
    auto all = net->parameters();
    for (const auto& buffer : net->buffers()) all.push_back(buffer);
    for (const auto& state : state_tensors(*optimizer)) all.push_back(state.tensor);
    return guard::bits_of(all);
  }
};

template <class Optimizer, class Options>
void refuses(const Options& options) {
  auto program = Program::with<Optimizer>(options);
  Guard guard(*program.net, *program.optimizer, {.on_fault = OnFault::skip});
  for (int i = 0; i < 2; ++i) guard.step(batch_of(i), program);
  const auto before = program.parameter_bits();
  guard.step(batch_of(2, true), program);
  EXPECT_EQ(program.parameter_bits(), before);
  guard.step(batch_of(3), program);
  EXPECT_NE(program.parameter_bits(), before);
  ASSERT_EQ(guard.actions().size(), 1u);
  EXPECT_EQ(guard.actions()[0].kind, GuardAction::Kind::skip);
  EXPECT_EQ(guard.actions()[0].step, 2);
}

TEST(Guard, AFaultyStepLeavesParametersBuffersAndStateUntouched) {
  using namespace torch::optim;
  refuses<SGD>(SGDOptions(0.1).momentum(0.9));
  refuses<Adam>(AdamOptions(1e-2).amsgrad(true));
  refuses<AdamW>(AdamWOptions(1e-2));
  refuses<RMSprop>(RMSpropOptions(1e-2).momentum(0.5));
  refuses<Adagrad>(AdagradOptions(1e-2));
  refuses<LBFGS>(LBFGSOptions(0.1).max_iter(3));
}

TEST(Guard, ARunWithoutAFaultIsBitForBitTheSame) {
  auto plain = Program::with();
  for (int i = 0; i < 6; ++i) {
    plain(batch_of(i));
    plain.optimizer->step();
  }
  const auto expected = plain.bits();
  auto program = Program::with();
  Guard guard(*program.net, *program.optimizer, {.undo_step = true, .snapshot_every = 2});
  for (int i = 0; i < 6; ++i) guard.step(batch_of(i), program);
  EXPECT_EQ(program.bits(), expected);
  EXPECT_TRUE(guard.actions().empty());
}

TEST(Guard, ReplaysAreExactAndLeaveNoTrace) {
  const auto run = [](bool replays) {
    auto program = Program::with();
    GuardOptions options{.on_fault = OnFault::skip};
    options.save = [&] { return std::make_shared<int>(program.calls); };
    options.restore = [&](const std::shared_ptr<void>& saved) {
      program.calls = *std::static_pointer_cast<int>(saved);
    };
    Guard guard(*program.net, *program.optimizer, options);
    int seen = 0;
    if (replays) {
      guard.on_replay([&](guard::Replayer& replayer, const guard::ReplayResult& step) {
        const auto verdict = replayer.verify(step, 3);
        EXPECT_TRUE(verdict.exact) << verdict.why;
        EXPECT_EQ(verdict.failed, 3);
        guard::Change cure;
        cure.batch = [](guard::BatchTensors batch) {
          batch[0].nan_to_num_(0);
          return batch;
        };
        EXPECT_TRUE(replayer.run(cure).finite);
        EXPECT_FALSE(replayer.run().finite);
        ++seen;
      });
    }
    for (int i = 0; i < 6; ++i) guard.step(batch_of(i, i == 3), program);
    EXPECT_EQ(seen, replays ? 1 : 0);
    EXPECT_EQ(program.calls, 6);
    return program.bits();
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(Guard, RaiseTellsTheOriginAndWritesNothing) {
  auto program = Program::with();
  Guard guard(*program.net, *program.optimizer);
  guard.step(batch_of(0), program);
  const auto before = program.parameter_bits();
  const auto fails = [&](const Batch& batch) {
    auto loss = program(batch);
    program.optimizer->zero_grad();
    loss = (program.net->forward(batch.first).sum() * 0).log();
    loss.backward();
    return loss;
  };
  try {
    guard.step(batch_of(1), fails);
    FAIL() << "no fault";
  } catch (const TrainingFault& fault) {
    ASSERT_NE(fault.origin(), nullptr);
    EXPECT_EQ(fault.origin()->op, "aten::log");
    EXPECT_NE(std::string(fault.what()).find("step 1: the loss is -Inf"), std::string::npos) << fault.what();
  }
  EXPECT_EQ(program.parameter_bits(), before);
}

TEST(Guard, ExperimentsNameTheSamplesAndProveTheCauseAndLeaveNoTrace) {
  const auto run = [](bool asked, int replays) {
    auto program = Program::with();
    const auto train_step = [&](const Batch& batch) {
      program.optimizer->zero_grad();
      const auto fit = program.net->forward(batch.first).square().mean();
      auto loss = fit - batch.second.log().mean();
      loss.backward();
      return loss;
    };
    Guard guard(*program.net, *program.optimizer,
                {.on_fault = OnFault::skip, .replays = replays, .experiments = asked});
    const bool experiments = asked && replays > 0;
    for (int i = 0; i < 6; ++i) {
      Batch batch{batch_of(i).first, torch::ones({8, 3})};
      if (i == 4) batch.second[5][1] = 0;  // log of 0
      guard.step(batch, train_step);
    }
    const auto made = experiments_of(guard.run().facts);
    EXPECT_EQ(made.empty(), !experiments);
    if (experiments) {
      EXPECT_EQ(made.front().name, experiment::kUnchanged);
      EXPECT_EQ(made.front().outcome, ExperimentOutcome::failed);
      const auto samples = std::find_if(made.begin(), made.end(),
                                        [](const Experiment& one) { return one.name == experiment::kSamples; });
      EXPECT_TRUE(samples != made.end() && samples->outcome == ExperimentOutcome::cured);
      EXPECT_EQ(samples->samples, std::vector<std::int64_t>{5});
      const auto hypotheses = guard.explain();
      EXPECT_EQ(hypotheses.at(0).cause, "op_domain");
      EXPECT_EQ(hypotheses.at(0).standing, Standing::confirmed) << hypotheses.at(0).description;
    }
    return program.bits();
  };
  EXPECT_EQ(run(true, 2), run(false, 2));
  EXPECT_EQ(run(true, 0), run(false, 0));
}

// What the experiments on the only faulty step came to, by name.
std::map<std::string, ExperimentOutcome> outcomes(Guard& guard) {
  std::map<std::string, ExperimentOutcome> by_name;
  for (const Experiment& one : experiments_of(guard.run().facts)) by_name[one.name] = one.outcome;
  return by_name;
}

using Outcome = ExperimentOutcome;

TEST(Guard, ALearningRateThatIsNotFiniteIsProvedByTheOneFromBeforeEvenWhereTheStepSetsIt) {
  auto program = Program::with();
  Guard guard(*program.net, *program.optimizer, {.on_fault = OnFault::skip});
  int step = 0;
  const auto train_step = [&](const Batch& batch) {
    program.optimizer->param_groups()[0].options().set_lr(step == 2 ? std::nan("") : 1e-2);
    return program(batch);
  };
  for (; step < 4; ++step) guard.step(batch_of(step), train_step);
  EXPECT_EQ(outcomes(guard).at("hyperparameter"), Outcome::cured);
  EXPECT_EQ(guard.explain().at(0).cause, "hyperparameter");
  EXPECT_EQ(guard.explain().at(0).standing, Standing::confirmed) << guard.explain().at(0).description;
  EXPECT_EQ(program.optimizer->param_groups()[0].options().get_lr(), 1e-2);
}

TEST(Guard, AnEpsThatIsZeroInFloat16IsProvedByAnotherOneForRMSpropToo) {
  torch::manual_seed(0);
  torch::nn::Linear model(4, 2);
  model->to(torch::kHalf);
  torch::optim::RMSprop optimizer(model->parameters(), torch::optim::RMSpropOptions(1e-3));
  Guard guard(*model, optimizer, {.on_fault = OnFault::skip});
  guard.step(std::vector<at::Tensor>{torch::zeros({3, 4}, torch::kHalf)}, [&](const std::vector<at::Tensor>& batch) {
    optimizer.zero_grad();
    auto loss = model->forward(batch[0]).to(torch::kFloat).square().mean();
    loss.backward();
    return loss;
  });
  ASSERT_EQ(guard.actions().size(), 1u);
  EXPECT_EQ(guard.actions()[0].fault, "hyperparameter");
  EXPECT_EQ(outcomes(guard).at("hyperparameter"), Outcome::cured);
}

// Half-precision weights, and a product beyond what float16 holds in step 2.
std::map<std::string, ExperimentOutcome> after_an_overflow_in_float16(bool casts_by_itself) {
  torch::manual_seed(0);
  torch::nn::Linear model(4, 2);
  model->to(torch::kHalf);
  const auto before = guard::bits_of(model->parameters());
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0));
  Guard guard(*model, optimizer, {.on_fault = OnFault::skip});
  for (int step = 0; step < 4; ++step) {
    const at::Tensor input = torch::full({3, 4}, step == 2 ? 6e4 : 1.0, torch::kHalf);
    guard.step(std::vector<at::Tensor>{input}, [&](const std::vector<at::Tensor>& batch) {
      optimizer.zero_grad();
      auto out = model->forward(batch[0]) * 50;
      if (casts_by_itself) out = out.to(torch::kHalf);
      auto loss = out.abs().mean().to(torch::kFloat);
      loss.backward();
      return loss;
    });
  }
  EXPECT_EQ(guard::bits_of(model->parameters()), before);
  EXPECT_EQ(model->weight.scalar_type(), torch::kHalf);
  return outcomes(guard);
}

TEST(Guard, AnOverflowInFloat16IsCuredInFloat32) {
  EXPECT_EQ(after_an_overflow_in_float16(false).at("float32"), Outcome::cured);
}

TEST(Guard, WhereTheProgramCastsByItselfFloat32SaysNothing) {
  EXPECT_EQ(after_an_overflow_in_float16(true).at("float32"), Outcome::not_applicable);
}

TEST(Guard, ParametersThatAreFarTooLargeFromTheStartAreCuredByOthers) {
  torch::nn::Linear model(4, 2);
  {
    const torch::NoGradGuard no_grad;
    model->weight.fill_(1e30);
  }
  const auto before = guard::bits_of(model->parameters());
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1));
  Guard guard(*model, optimizer, {.on_fault = OnFault::skip});
  guard.step(std::vector<at::Tensor>{torch::ones({3, 4})}, [&](const std::vector<at::Tensor>& batch) {
    optimizer.zero_grad();
    auto loss = model->forward(batch[0]).square().mean();
    loss.backward();
    return loss;
  });
  EXPECT_EQ(guard.actions().size(), 1u);
  EXPECT_EQ(guard::bits_of(model->parameters()), before);
  EXPECT_EQ(outcomes(guard).at("initialised"), Outcome::cured);
}

TEST(Guard, ARollbackGoesBackToTheSnapshot) {
  auto program = Program::with();
  Guard guard(*program.net, *program.optimizer, {.on_fault = OnFault::rollback, .snapshot_every = 2});
  for (int i = 0; i < 2; ++i) guard.step(batch_of(i), program);
  const auto at_snapshot = program.bits();
  guard.step(batch_of(2), program);
  guard.step(batch_of(3, true), program);
  EXPECT_EQ(program.bits(), at_snapshot);
  ASSERT_EQ(guard.actions().size(), 1u);
  EXPECT_EQ(guard.actions()[0].snapshot, 2);
  EXPECT_EQ(guard.actions()[0].lost, 1);
}

TEST(Guard, WhatTheOptimizersArithmeticBreaksIsUndone) {
  for (const bool per_step : {true, false}) {
    auto program = Program::with<torch::optim::SGD>(torch::optim::SGDOptions(0.1));
    Guard guard(*program.net, *program.optimizer, {.on_fault = OnFault::skip, .undo_step = per_step});
    guard.step(batch_of(0), program);
    const auto before = program.parameter_bits();
    program.optimizer->param_groups()[0].options().set_lr(3e38);
    Batch batch = batch_of(1);
    batch.second += 1e4;
    guard.step(batch, program);
    for (const auto& parameter : program.net->parameters()) EXPECT_TRUE(parameter.isfinite().all().item<bool>());
    EXPECT_EQ(program.parameter_bits() == before, per_step);
    ASSERT_EQ(guard.actions().size(), 1u);
    EXPECT_EQ(guard.actions()[0].undone, per_step ? "copy" : "snapshot");
    EXPECT_EQ(guard.actions()[0].fault, "result");
  }
}

TEST(Guard, AHyperparameterThatIsNotFiniteIsNamed) {
  auto program = Program::with();
  Guard guard(*program.net, *program.optimizer, {.on_fault = OnFault::skip});
  program.optimizer->param_groups()[0].options().set_lr(std::nan(""));
  guard.step(batch_of(0), program);
  ASSERT_EQ(guard.actions().size(), 1u);
  EXPECT_EQ(guard.actions()[0].reason, "lr is NaN");
}

TEST(Guard, SkipsInARowEndInAFault) {
  auto program = Program::with();
  Guard guard(*program.net, *program.optimizer, {.on_fault = OnFault::skip, .max_consecutive_skips = 3});
  int made = 0;
  EXPECT_THROW(for (; made < 1000; ++made) guard.step(batch_of(made, true), program), TrainingFault);
  EXPECT_EQ(made, 3);
}

TEST(Guard, AThousandBadBatchesStopOrGoBackByPolicy) {
  struct Case {
    GuardOptions options;
    int made, rollbacks;
  };
  const Case cases[] = {
      {{.on_fault = OnFault::skip}, 10, 0},
      {{.on_fault = OnFault::skip, .after_skips = OnFault::rollback}, 43, 3},
      {{.on_fault = OnFault::rollback}, 3, 3},
      {{.on_fault = OnFault::skip, .max_consecutive_skips = 2000}, 1000, 0},
  };
  for (const Case& one : cases) {
    auto program = Program::with();
    GuardOptions options = one.options;
    options.watch.level = "gradients";
    options.replays = 0;
    options.experiments = false;
    Guard guard(*program.net, *program.optimizer, options);
    guard.step(batch_of(0), program);
    const auto before = program.parameter_bits();
    int made = 0;
    try {
      for (; made < 1000; ++made) guard.step(batch_of(made, true), program);
    } catch (const TrainingFault&) {
    }
    EXPECT_EQ(made, one.made);
    const auto& actions = guard.actions();
    const auto goes_back = [](const GuardAction& action) { return action.kind == GuardAction::Kind::rollback; };
    EXPECT_EQ(std::count_if(actions.begin(), actions.end(), goes_back), one.rollbacks);
    for (const auto& parameter : program.net->parameters()) EXPECT_TRUE(parameter.isfinite().all().item<bool>());
    if (one.rollbacks == 0) {
      EXPECT_EQ(program.parameter_bits(), before);
    }
  }
}

TEST(Guard, AFaultThatComesBackInOneOfTheReplaysIsCalledSo) {
  for (int again = 0; again < 4; ++again) {
    auto program = Program::with();
    int calls = 0;  // no `save`: it goes on in the replays
    const auto train_step = [&](const Batch& batch) {
      const int number = calls++;
      program.optimizer->zero_grad();
      auto loss = program.net->forward(batch.first).square().mean();
      if (number == 2 || number == 3 + again) loss = loss * std::nan("");
      loss.backward();
      return loss;
    };
    Guard guard(*program.net, *program.optimizer, {.on_fault = OnFault::skip, .replays = 4});
    for (int i = 0; i < 3; ++i) guard.step(batch_of(i), train_step);
    const auto made = experiments_of(guard.run().facts);
    ASSERT_EQ(made.size(), 1u);
    EXPECT_NE(made[0].text.find("1 of 4 replays"), std::string::npos) << made[0].text;
    const auto hypotheses = guard.explain();
    EXPECT_TRUE(std::any_of(hypotheses.begin(), hypotheses.end(),
                            [](const Hypothesis& one) { return one.cause == "not_reproducible"; }));
  }
}

TEST(Guard, AnExceptionInAReplayEndsTheReplaysAndOneInTheStepGoesThrough) {
  auto program = Program::with();
  int calls = 0;
  const auto train_step = [&](const Batch& batch) {
    if (++calls > 2) throw std::out_of_range("the loader has ended");
    return program(batch);
  };
  Guard guard(*program.net, *program.optimizer, {.on_fault = OnFault::skip});
  guard.step(batch_of(0), train_step);
  const auto before = program.parameter_bits();
  testing::internal::CaptureStderr();
  guard.step(batch_of(1, true), train_step);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("cannot be run again exactly"), std::string::npos);
  EXPECT_EQ(program.parameter_bits(), before);
  const auto made = experiments_of(guard.run().facts);
  ASSERT_EQ(made.size(), 1u);
  EXPECT_NE(made[0].text.find("the loader has ended"), std::string::npos) << made[0].text;
  for (const Hypothesis& one : guard.explain()) EXPECT_NE(one.cause, "not_reproducible");
  EXPECT_THROW(guard.step(batch_of(2), train_step), std::out_of_range);
  EXPECT_EQ(program.parameter_bits(), before);
  guard.step(batch_of(3), program);
  EXPECT_NE(program.parameter_bits(), before);
}

TEST(Guard, ClipsBeforeTheOptimizerAndWritesItDown) {
  auto reference = Program::with<torch::optim::SGD>(torch::optim::SGDOptions(0.1));
  Batch batch = batch_of(0);
  batch.second += 100;
  reference(batch);
  const double norm = torch::nn::utils::clip_grad_norm_(reference.net->parameters(), 0.5);
  auto program = Program::with<torch::optim::SGD>(torch::optim::SGDOptions(0.1));
  Guard guard(*program.net, *program.optimizer, {.max_norm = 0.5});
  guard.step(batch, program);
  ASSERT_EQ(guard.actions().size(), 1u);
  EXPECT_EQ(guard.actions()[0].kind, GuardAction::Kind::clip);
  EXPECT_NEAR(guard.actions()[0].norm, norm, 1e-4 * norm);
  EXPECT_NEAR(guard.actions()[0].length, 0.1 * norm, 1e-4 * norm);
  EXPECT_EQ(guard.run().actions.size(), 1u);
}

TEST(Guard, SkipsOfTheScalerAreItsOwn) {
  auto program = Program::with<torch::optim::SGD>(torch::optim::SGDOptions(0.01));
  GradScaler scaler({.init_scale = 3e38, .growth_interval = 1000});
  GuardOptions options;
  options.scaler = &scaler;
  Guard guard(*program.net, *program.optimizer, options);
  const auto train = [&](const Batch& batch) {
    program.optimizer->zero_grad();
    auto loss = (program.net->forward(batch.first) - batch.second - 10).square().mean();
    scaler.scale(loss).backward();
    return loss;
  };
  for (int i = 0; i < 12; ++i) guard.step(batch_of(i), train);
  EXPECT_TRUE(guard.actions().empty());
  EXPECT_LT(scaler.get_scale(), 3e38);
}

TEST(Guard, AnOriginThatOnlyAReplayShowedIsInTheRun) {
  auto program = Program::with();
  GuardOptions options{.on_fault = OnFault::skip, .experiments = false};
  options.watch.level = "gradients";
  Guard guard(*program.net, *program.optimizer, options);
  const auto fails = [&](const Batch& batch) {
    program.optimizer->zero_grad();
    auto loss = (program.net->forward(batch.first).sum() * 0).log();
    loss.backward();
    return loss;
  };
  guard.step(batch_of(0), fails);
  const firstfault::Run run = guard.run();
  ASSERT_FALSE(run.origins.empty());
  EXPECT_EQ(run.origins[0].op, "aten::log");
  EXPECT_TRUE(run.origins[0].replayed);
  for (const Origin& origin : run.origins) EXPECT_FALSE(origin.sink.empty()) << origin.op;
}

/// Body and head, each with an optimizer of its own.
struct Halves {
  Program body = Program::with();
  torch::nn::Linear head{nullptr};
  std::unique_ptr<torch::optim::SGD> second;

  Halves() {
    head = body.net->register_module("head", torch::nn::Linear(3, 2));
    second = std::make_unique<torch::optim::SGD>(head->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  }
  Guard::Optimizers optimizers() { return {*body.optimizer, *second}; }
  torch::Tensor operator()(const Batch& batch) {
    body.optimizer->zero_grad();
    second->zero_grad();
    auto loss = head->forward(body.net->forward(batch.first)).square().mean();
    loss.backward();
    return loss;
  }
  std::uint64_t first_bits() const { return bits(*body.optimizer); }
  std::uint64_t second_bits() const { return bits(*second); }
  static std::uint64_t bits(torch::optim::Optimizer& optimizer) {
    auto all = parameters_of(optimizer);
    for (const auto& state : state_tensors(optimizer)) all.push_back(state.tensor);
    return guard::bits_of(all);
  }
};

TEST(Guard, OfSeveralOptimizersEachMakesItsStepAsWithoutAGuard) {
  Halves plain;
  for (int i = 0; i < 4; ++i) {
    plain(batch_of(i));
    plain.body.optimizer->step();
    plain.second->step();
  }
  Halves guarded;
  Guard guard(*guarded.body.net, guarded.optimizers(), {.undo_step = true});
  for (int i = 0; i < 4; ++i) guard.step(batch_of(i), guarded);
  EXPECT_EQ(guarded.first_bits(), plain.first_bits());
  EXPECT_EQ(guarded.second_bits(), plain.second_bits());
}

TEST(Guard, AStepThatIsFaultyForOneOfSeveralOptimizersIsLeftOutForAll) {
  Halves halves;
  Guard guard(*halves.body.net, halves.optimizers(), {.on_fault = OnFault::skip});
  guard.step(batch_of(0), halves);
  const auto first = halves.first_bits(), second = halves.second_bits();
  halves.second->param_groups()[0].options().set_lr(std::nan(""));
  guard.step(batch_of(1), halves);
  EXPECT_EQ(halves.first_bits(), first);
  EXPECT_EQ(halves.second_bits(), second);
  ASSERT_EQ(guard.actions().size(), 1u);
  EXPECT_EQ(guard.actions()[0].reason, "lr is NaN");
  const auto hypotheses = guard.explain();
  ASSERT_FALSE(hypotheses.empty());
  EXPECT_EQ(hypotheses[0].cause, "hyperparameter");
  EXPECT_EQ(hypotheses[0].standing, Standing::confirmed);
  halves.second->param_groups()[0].options().set_lr(0.1);
  guard.step(batch_of(2), halves);
  EXPECT_NE(halves.first_bits(), first);
  EXPECT_NE(halves.second_bits(), second);
}

TEST(Guard, OneOfSeveralOptimizersMayMakeItsStepAloneAndIsRefusedAlone) {
  Halves halves;
  Guard guard(*halves.body.net, halves.optimizers(), {.on_fault = OnFault::skip});
  const auto first = halves.first_bits();
  auto second = halves.second_bits();
  guard.step(*halves.second, batch_of(0), halves);
  EXPECT_EQ(halves.first_bits(), first);
  EXPECT_NE(halves.second_bits(), second);
  second = halves.second_bits();
  guard.step(*halves.second, batch_of(1, true), halves);
  EXPECT_EQ(halves.second_bits(), second);
  guard.step(*halves.body.optimizer, batch_of(2), halves);
  EXPECT_NE(halves.first_bits(), first);
  EXPECT_EQ(halves.second_bits(), second);
  EXPECT_EQ(guard.actions().size(), 1u);
}

TEST(Guard, ARollbackAndAnUndoneStepTakeAllOptimizersBack) {
  for (const bool per_step : {true, false}) {
    Halves halves;
    GuardOptions options{.on_fault = per_step ? OnFault::skip : OnFault::rollback, .undo_step = per_step};
    options.snapshot_every = 2;
    Guard guard(*halves.body.net, halves.optimizers(), options);
    for (int i = 0; i < 2; ++i) guard.step(batch_of(i), halves);
    const auto first = halves.first_bits(), second = halves.second_bits();
    halves.second->param_groups()[0].options().set_lr(3e38);  // its arithmetic overflows, after the first one's step
    Batch batch = batch_of(2);
    batch.first *= 1e3;
    guard.step(batch, halves);
    EXPECT_EQ(halves.first_bits(), first);
    EXPECT_EQ(halves.second_bits(), second);
    ASSERT_EQ(guard.actions().size(), 1u);
    EXPECT_EQ(guard.actions()[0].fault, "result");
  }
}

TEST(Guard, RefusesOptimizersThatItDoesNotGuardAndStepsThatCannotBeMadeTogether) {
  Halves halves;
  EXPECT_THROW(Guard(*halves.body.net, Guard::Optimizers{}), Error);
  torch::optim::LBFGS closure(halves.head->parameters(), torch::optim::LBFGSOptions(0.1));
  Guard guard(*halves.body.net, {*halves.body.optimizer, closure});
  EXPECT_THROW(guard.step(*halves.second, batch_of(0), halves), Error);
  EXPECT_THROW(guard.step(batch_of(0), halves), Error);
  EXPECT_NO_THROW(guard.step(closure, batch_of(0), halves));
}

TEST(OptimizerCopy, TakenAnewItHasTheNewValuesInTheMemoryThatItHad) {
  auto program = Program::with();
  const auto step = [&](int seed) {
    program(batch_of(seed));
    program.optimizer->step();
  };
  OptimizerCopy copy(*program.optimizer);  // before there is any state
  for (int i = 0; i < 3; ++i) {
    step(i);
    copy.renew();
    const auto then = Halves::bits(*program.optimizer);
    step(10 + i);
    EXPECT_NE(Halves::bits(*program.optimizer), then);
    copy.restore();
    EXPECT_EQ(Halves::bits(*program.optimizer), then);
  }
}

TEST(Guard, WhatASubclassOfAnOptimizerWritesBesideItsOpsIsReadInEveryStep) {
  struct Own : torch::optim::SGD {
    using SGD::SGD;
    bool breaks = false;
    torch::Tensor step(LossClosure closure) override {
      auto loss = SGD::step(std::move(closure));
      if (breaks) param_groups()[0].params()[0].data_ptr<float>()[0] = std::nanf("");
      return loss;
    }
  };
  auto program = Program::with();
  auto owned = std::make_unique<Own>(program.net->parameters(), torch::optim::SGDOptions(0.1));
  Own& own = *owned;
  program.optimizer = std::move(owned);
  Guard guard(*program.net, own, {.on_fault = OnFault::skip, .undo_step = true, .experiments = false});
  for (int i = 0; i < 3; ++i) guard.step(batch_of(i), program);
  const auto before = program.parameter_bits();
  own.breaks = true;
  guard.step(batch_of(3), program);
  EXPECT_EQ(program.parameter_bits(), before);
  ASSERT_EQ(guard.actions().size(), 1u);
  EXPECT_EQ(guard.actions()[0].fault, "result");
}

TEST(Guard, RefusesToRollBackAnOptimizerWhoseStateItDoesNotKnow) {
  struct Own : torch::optim::Optimizer {
    explicit Own(std::vector<torch::Tensor> parameters)
        : Optimizer(std::move(parameters), std::make_unique<torch::optim::SGDOptions>(0.1)) {}
    torch::Tensor step(LossClosure) override { return {}; }
  };
  Net net;
  Own own(net->parameters());
  EXPECT_THROW(Guard(*net, own, {.on_fault = OnFault::rollback}), Error);
  EXPECT_NO_THROW(Guard(*net, own, {.on_fault = OnFault::skip}));
}

}  // namespace
}  // namespace firstfault
