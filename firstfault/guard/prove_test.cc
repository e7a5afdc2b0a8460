#include "firstfault/guard/prove.h"

#include <cmath>
#include <map>
#include <string>

#include <gtest/gtest.h>

namespace firstfault::guard {
namespace {

const std::vector<std::string> kNothing, kSomething = {"dead_units"};

using Losses = std::vector<double>;
using Outcome = ExperimentOutcome;

// A program whose windows end as they were written down, by the name of the change ("" for none, "lower_rate/10").
class Scripted final : public WindowProgram {
 public:
  explicit Scripted(std::map<std::string, WindowRun> runs, std::int64_t data = 1'000'000)
      : runs_(std::move(runs)), data_(data) {}

  std::optional<WindowRun> run(const WindowChange* change, std::int64_t steps, bool watched) override {
    std::string name = change ? std::string(change->name) : "";
    if (change && change->divisor > 1) name += "/" + std::to_string(change->divisor);
    calls.push_back(name);
    watched_.push_back(watched);
    const auto found = runs_.find(name);
    if (found == runs_.end()) return std::nullopt;
    WindowRun run = found->second;
    if (!diverges(run)) run.losses.resize(static_cast<std::size_t>(std::min(steps, data_)), run.losses.back());
    return run;
  }

  std::vector<std::string> calls;
  std::vector<bool> watched_;

 private:
  std::map<std::string, WindowRun> runs_;
  std::int64_t data_;
};

const WindowRun kDiverged{{1, 4, 60, 9e3, NAN}, {}}, kLearns{{1, 0.9, 0.8, 0.7}, {}};
const WindowRun kFlat{{2, 2, 2, 2}, kSomething}, kWell{{2, 1.5, 1, 0.5}, kNothing}, kStillFlat{{2, 2, 2, 2}, kNothing};

const Experiment* find(const std::vector<Experiment>& made, std::string_view name) {
  for (const Experiment& one : made) {
    if (one.name == name) return &one;
  }
  return nullptr;
}

WindowPlan plan_of(bool diverged, std::vector<std::string_view> own = {}) {
  return {.step = 7, .first = 0, .steps = 5, .diverged = diverged, .own = std::move(own)};
}

TEST(Prove, AWindowThatShowsNothingIsAll) {
  Scripted program({{"", kLearns}});
  const auto made = prove_by_windows(program, plan_of(true));
  ASSERT_EQ(made.size(), 1u);
  EXPECT_EQ(made[0].name, experiment::kWindow);
  EXPECT_EQ(made[0].outcome, Outcome::cured);
  EXPECT_EQ(made[0].step, 7);
  EXPECT_EQ(made[0].text, "5 steps from step 0, nothing changed");
}

TEST(Prove, OfADivergenceEveryChangeThatCuresSomeIsMade) {
  Scripted program({{"", kDiverged}, {"lower_rate/10", kLearns}, {"zero_grad", kDiverged}, {"averaged", kDiverged}});
  const auto made = prove_by_windows(program, plan_of(true));
  // A hundredth of the rate is not asked for once a tenth cures.
  EXPECT_EQ(program.calls,
            (std::vector<std::string>{"", "lower_rate/10", "zero_grad", "averaged", "warm_up", "standardised"}));
  EXPECT_EQ(find(made, "lower_rate")->outcome, Outcome::cured);
  EXPECT_EQ(find(made, "lower_rate")->size, 50);
  EXPECT_EQ(find(made, "zero_grad")->outcome, Outcome::failed);
  EXPECT_EQ(find(made, "warm_up")->outcome, Outcome::not_applicable);  // the program cannot make it
  for (const bool watched : program.watched_) EXPECT_FALSE(watched);
}

TEST(Prove, ALowerRateOverTooFewStepsSaysNothing) {
  Scripted program({{"", kDiverged}, {"lower_rate/10", kLearns}, {"lower_rate/100", kLearns}}, 49);
  const auto made = prove_by_windows(program, plan_of(true));
  for (const Experiment& one : made) {
    EXPECT_TRUE(one.name != experiment::kLowerRate || one.outcome == Outcome::not_applicable) << one.text;
  }
}

TEST(Prove, ALowerRateThatCannotBeLoweredEnoughRefutesNothing) {
  Scripted program({{"", kDiverged}, {"lower_rate/10", kDiverged}});
  WindowPlan plan = plan_of(true);
  plan.steps = 60;
  const auto made = prove_by_windows(program, plan);
  EXPECT_EQ(find(made, "lower_rate")->outcome, Outcome::not_applicable);
}

TEST(Prove, AWarmUpIsOnlyThereAtTheStartAndRawScoresWhereTheyAre) {
  Scripted program({{"", kDiverged}});
  WindowPlan plan = plan_of(true);
  plan.first = 3, plan.raw_scores = true;
  prove_by_windows(program, plan);
  EXPECT_EQ(program.calls, (std::vector<std::string>{"", "lower_rate/10", "lower_rate/100", "zero_grad", "averaged",
                                                     "standardised", "log_probabilities"}));
}

TEST(Prove, OfAnotherFaultTheChangesOfItsCausesAreMadeAndWatched) {
  Scripted program({{"", kFlat}, {"leaky_activation", kWell}, {"initialised", kStillFlat}});
  std::vector<std::string> told;
  WindowPlan plan = plan_of(false, {experiment::kLeaky, experiment::kInitialised});
  plan.progress = [&](const Experiment& one) { told.push_back(one.name); };
  const auto made = prove_by_windows(program, plan);
  EXPECT_EQ(told, (std::vector<std::string>{"window", "initialised", "leaky_activation"}));
  EXPECT_EQ(find(made, "leaky_activation")->outcome, Outcome::cured);
  EXPECT_EQ(find(made, "initialised")->outcome, Outcome::failed);  // silent, and learns nothing
  EXPECT_EQ(find(made, "leaky_activation")->text, "leaky_relu in place of relu, 5 steps from step 0");
  for (const bool watched : program.watched_) EXPECT_TRUE(watched);
}

TEST(Prove, AWarmUpOfADivergenceHasToHoldForAsLongAgain) {
  Scripted program({{"", kDiverged}, {"warm_up", kLearns}});
  const auto of_divergence = prove_by_windows(program, plan_of(true));
  EXPECT_EQ(find(of_divergence, "warm_up")->size, 10);
  Scripted flat({{"", kFlat}, {"warm_up", kWell}});
  const auto of_another = prove_by_windows(flat, plan_of(false, {experiment::kWarmUp}));
  EXPECT_EQ(find(of_another, "warm_up")->size, 5);
}

TEST(Prove, OfADivergenceWhatIsSuspectedIsTriedTooButNotWhatChangesEveryValue) {
  Scripted program({{"", kDiverged}, {"float32", kLearns}, {"initialised", kLearns}});
  const auto made = prove_by_windows(program, plan_of(true, {experiment::kFloat32, experiment::kInitialised}));
  EXPECT_EQ(find(made, "float32")->outcome, Outcome::cured);
  EXPECT_EQ(find(made, "initialised"), nullptr);
}

TEST(Prove, WindowsBeginAtASnapshotBeforeTheOnset) {
  const std::vector<std::int64_t> snapshots = {0, 100, 200};
  const auto spans = [&](std::int64_t onset, std::int64_t step, std::int64_t made, bool diverged) {
    std::string text;
    for (const auto& [first, steps] : window_spans(onset, step, made, diverged, snapshots)) {
      text += std::to_string(first) + "+" + std::to_string(steps) + " ";
    }
    return text;
  };
  EXPECT_EQ(spans(110, 117, 118, true), "100+20 ");
  EXPECT_EQ(spans(210, 230, 300, false), "100+200 0+300 ");
  EXPECT_EQ(spans(0, 5, 300, false), "0+300 ");
  EXPECT_EQ(spans(0, 5, 20'000, false), "0+5000 ");
  EXPECT_TRUE(window_spans(0, 5, 300, false, {}).empty());
  EXPECT_TRUE(window_spans(5, 7, 300, true, {100}).empty());
}

TEST(Prove, NoWindowIsLongerThanFiveThousandSteps) {
  Scripted program({{"", kDiverged}});
  WindowPlan plan = plan_of(true);
  plan.steps = 501;
  prove_by_windows(program, plan);
  EXPECT_EQ(program.calls[1], "zero_grad");
}

TEST(Prove, AProgramThatCannotBeRunAgainGivesNothing) {
  Scripted program({});
  EXPECT_TRUE(prove_by_windows(program, plan_of(true)).empty());
}

}  // namespace
}  // namespace firstfault::guard
