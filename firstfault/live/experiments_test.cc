#include "firstfault/live/guard/experiments.h"

#include <algorithm>
#include <cmath>

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

#include "firstfault/live/guard/experiments/op_repair.h"
#include "firstfault/live/guard/experiments/rows.h"
#include "firstfault/live/watch.h"

namespace firstfault::guard {
namespace {

using Outcome = ExperimentOutcome;

// The loss is the mean of log(x * w), with w about 1.
class Logarithm final : public ReplayProgram {
 public:
  Logarithm() : weight(at::ones({3}).set_requires_grad(true)) {}
  void restore() override {}
  void resume() override {}
  at::Tensor run(const BatchTensors& batch, bool) override {
    weight.mutable_grad() = at::Tensor();
    at::Tensor loss = batch[0].mul(weight).log().mean();
    loss.backward();
    return loss;
  }
  at::Tensor weight;
};

struct Made {
  Experiments experiments;
  const Experiment& operator[](std::string_view name) const {
    const auto& all = experiments.made;
    return *std::find_if(all.begin(), all.end(), [&](const Experiment& one) { return one.name == name; });
  }
};

Made experiment_on(const at::Tensor& faulty, int max_replays = 64) {
  Watch watch(WatchOptions{});
  Logarithm program;
  BatchMemory memory;
  for (int i = 0; i < 4; ++i) memory.remember({at::rand({32, 3}).add(0.5)});
  StepState state;
  state.batch = {faulty};
  state.parameters = {program.weight};
  state.names = {"weight"};
  state.gradients.resize(1);
  state.random = RandomState::now();
  Circumstances given;
  const at::Tensor loss = program.run({faulty.clone()}, false);
  given.result = result_now(state, loss, false);
  given.previous = memory.previous();
  given.ranges = memory.ranges();
  given.batches = memory.batches();
  given.max_replays = max_replays;
  Replayer replayer(
      state, program, [&](const auto& body) { return watch.aside(body); }, false);
  return {experiment(replayer, given)};
}

at::Tensor batch_with(const std::vector<std::int64_t>& zeros) {
  at::Tensor batch = at::full({32, 3}, 0.75);
  for (const auto row : zeros) batch[row].fill_(-1);
  return batch;
}

TEST(Experiments, TheOperandOfTheFirstFaultAndItsSampleAreFound) {
  const Made made = experiment_on(batch_with({9}));
  EXPECT_TRUE(made.experiments.exactness.exact);
  EXPECT_EQ(made["unchanged"].outcome, Outcome::failed);
  EXPECT_EQ(made["previous_batch"].outcome, Outcome::cured);
  EXPECT_EQ(made["operand"].outcome, Outcome::cured);
  EXPECT_EQ(made["operand"].op, "aten::log");
  EXPECT_EQ(made["samples"].samples, (std::vector<std::int64_t>{9}));
  EXPECT_EQ(made["clipped"].outcome, Outcome::cured);
  EXPECT_EQ(made["grown"].outcome, Outcome::failed);
  EXPECT_EQ(made["imputed"].outcome, Outcome::not_applicable);
}

TEST(Experiments, NothingIsSaidOfAStepThatDoesNotFailAgain) {
  Watch watch(WatchOptions{});
  Logarithm program;
  StepState state;
  state.batch = {batch_with({})};
  state.parameters = {program.weight};
  state.names = {"weight"};
  state.gradients.resize(1);
  Circumstances given;
  given.result.bad = {"loss"};
  Replayer replayer(
      state, program, [&](const auto& body) { return watch.aside(body); }, false);
  const Experiments made = experiment(replayer, given);
  EXPECT_FALSE(made.exactness.deterministic);
  ASSERT_EQ(made.made.size(), 1u);
  EXPECT_EQ(made.made[0].outcome, Outcome::cured);
}

TEST(Experiments, TheBudgetOfReplaysIsHeld) {
  const Made made = experiment_on(batch_with({9}), 1);
  EXPECT_EQ(made["previous_batch"].outcome, Outcome::cured);
  EXPECT_EQ(made["operand"].outcome, Outcome::out_of_budget);
  EXPECT_EQ(made["samples"].outcome, Outcome::out_of_budget);
}

TEST(BatchMemory, RangesGrowAndAnOverwrittenBatchIsNoLongerThePreviousOne) {
  BatchMemory memory;
  memory.remember({at::full({2}, 3.0), at::full({2}, 5, at::kLong)});
  const at::Tensor last = at::full({2}, -1.0);
  memory.remember({last, at::full({2}, 7, at::kLong)});
  EXPECT_EQ(memory.ranges()[0]->least, -1);
  EXPECT_EQ(memory.ranges()[0]->greatest, 3);
  EXPECT_EQ(memory.ranges()[1]->greatest, 7);
  EXPECT_EQ(memory.previous().size(), 2u);
  last.fill_(9);
  EXPECT_TRUE(memory.previous().empty());
}

TEST(BatchMemory, ABatchThatIsNotFiniteLeavesTheRangeAsItWas) {
  BatchMemory memory;
  memory.remember({at::full({2}, 3.0)});
  memory.remember({at::full({2}, std::nan(""))});
  EXPECT_EQ(memory.ranges()[0]->greatest, 3);
}

TEST(Rows, TheCommonestFirstLengthIsTheSamplesAndTimeMayGoFirst) {
  const Rows rows = rows_of({at::ones({5, 4}), at::ones({7, 5}), at::ones({5}), at::ones({3})});
  EXPECT_EQ(rows.count, 5);
  EXPECT_EQ(rows.axis, (std::vector<int>{0, 1, 0, -1}));
}

TEST(Rows, KeptOnesStayAndTheOthersAreThoseOfAnotherBatch) {
  const BatchTensors batch = {at::full({4, 2}, 1.0)}, other = {at::full({4, 2}, 2.0)};
  const Rows rows = rows_of(batch);
  const BatchTensors mixed = with_rows_of(batch, other, rows, {2});
  EXPECT_EQ(mixed[0].sum().item<double>(), 2 * 1 + 6 * 2);
  EXPECT_EQ(mixed[0][2][0].item<double>(), 1);
  EXPECT_EQ(only_rows(batch, rows, {0, 3})[0].size(0), 2);
  EXPECT_EQ(appended(batch, other, rows)[0].size(0), 8);
  EXPECT_TRUE(appended(batch, {at::full({4, 3}, 2.0)}, rows).empty());
}

TEST(OpRepair, ValuesMoveInsideTheDomainAndOthersStay) {
  at::Tensor x = at::full({3}, 2.0);
  x[1] = -1;
  const c10::IValue value(x);
  EXPECT_EQ(make_ordinary("aten::log", c10::ArrayRef<const c10::IValue>(&value, 1)), 1);
  EXPECT_EQ(x[0].item<double>(), 2);
  EXPECT_GT(x[1].item<double>(), 0);
  EXPECT_FALSE(has_domain("aten::mm"));
}

TEST(OpRepair, OfAnExpandedTensorTheOneElementIsRepaired) {
  const at::Tensor one = at::full({1}, INFINITY);
  EXPECT_EQ(make_finite(one.expand({8})), 1);
  EXPECT_TRUE(std::isfinite(one.item<double>()));
}

}  // namespace
}  // namespace firstfault::guard
