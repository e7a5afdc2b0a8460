#include "firstfault/record/history.h"

#include <gtest/gtest.h>

#include "firstfault/record/hand_made.h"

namespace firstfault::record {
namespace {

TEST(History, GivesBackWhatItWasGiven) {
  History history;
  record_hand_made(history);
  const auto run = history.snapshot();
  EXPECT_EQ(run.steps, 20);
  EXPECT_EQ(run.ops, 4321);
  EXPECT_EQ(run.state, RunState::recording);
  EXPECT_EQ(run.setup.optimizers[0].groups[1].at("odd"), 1. / 3);
  ASSERT_EQ(run.sites.size(), 12u);
  EXPECT_EQ(run.sites[7].name, "site 7");
  ASSERT_EQ(run.rows.size(), 20u);
  EXPECT_EQ(run.rows[9].lr, 0.1 / 10);
  EXPECT_EQ(run.rows[9].sites[4].rms, 9 + 0.25f + 1000);
  ASSERT_EQ(run.transitions.size(), 2u);
  EXPECT_EQ(run.transitions[1].to, Condition::saturated);
  EXPECT_EQ(run.warnings, std::vector<std::string>{"something was switched off"});
}

TEST(History, PutsFaultsFirst) {
  History history;
  for (const Outcome outcome :
       {Outcome::unused, Outcome::swallowed, Outcome::fault, Outcome::deselected, Outcome::fault}) {
    history.add_origin(hand_made_origin(history.steps(), outcome));
    history.add_row(hand_made_row(history.steps(), 0));
  }
  std::vector<std::int64_t> steps;
  for (const Origin& origin : history.snapshot().origins) steps.push_back(origin.step);
  EXPECT_EQ(steps, (std::vector<std::int64_t>{2, 4, 1, 0, 3}));
}

TEST(History, ACompiledRegionGoesWhereAReplayOfItsStepNamedTheOp) {
  History history;
  const auto add = [&](std::int64_t step, TensorRole role, bool replayed) {
    Origin origin = hand_made_origin(step, Outcome::fault);
    origin.evidence.role = role;
    origin.replayed = replayed;
    history.add_origin(origin);
  };
  add(2, TensorRole::compiled, false);
  add(2, TensorRole::none, true);
  add(3, TensorRole::compiled, false);
  add(3, TensorRole::none, false);  // another op, seen in the step itself
  const auto origins = history.snapshot().origins;
  ASSERT_EQ(origins.size(), 3u);
  EXPECT_TRUE(origins[0].replayed);
  EXPECT_EQ(origins[1].evidence.role, TensorRole::compiled);
}

TEST(History, MergesAFactIntoTheOneLikeIt) {
  History history;
  for (std::int64_t step = 3; step < 10; ++step) {
    Fact fact = hand_made_fact(step);
    fact.line = static_cast<int>(step);
    history.merge_fact(fact);
  }
  Fact other = hand_made_fact(4);
  other.detail = "half";
  history.merge_fact(other);
  const auto facts = history.snapshot().facts;
  ASSERT_EQ(facts.size(), 2u);
  EXPECT_EQ(facts[0].count, 7);
  EXPECT_EQ(facts[0].first_step, 3);
  EXPECT_EQ(facts[0].last_step, 9);
  EXPECT_EQ(facts[0].line, 3);
  EXPECT_EQ(facts[0].numbers.at("norm"), 9);
  EXPECT_EQ(facts[1].count, 1);
}

TEST(History, LeavesOutAStepThatComesAgainAndSaysSoOnce) {
  History history;
  for (const std::int64_t step : {0, 1, 1, 0, 5}) history.add_row(hand_made_row(step, 0));
  const auto run = history.snapshot();
  ASSERT_EQ(run.rows.size(), 3u);
  EXPECT_EQ(run.rows[2].step, 5);
  EXPECT_EQ(run.steps, 6);
  EXPECT_EQ(run.warnings, std::vector<std::string>{kStepsMustRise});
}

TEST(History, TakesNoMoreOfAnythingThanItsLimits) {
  History history;
  for (int i = 0; i < 12'000; ++i) {
    history.add_site(hand_made_site(1));
    history.add_transition({i, 0, Condition::healthy, Condition::dead});
    Fact fact = hand_made_fact(i);
    fact.detail = std::to_string(i);
    history.merge_fact(fact);
    history.add_warning("warning " + std::to_string(i));
    if (i < 1200) history.add_origin(hand_made_origin(i, Outcome::fault));
  }
  EXPECT_EQ(history.add_site(hand_made_site(0)), -1);
  history.merge_fact(hand_made_fact(0));
  Fact known = hand_made_fact(0);
  known.detail = "0";
  history.merge_fact(known);
  const auto run = history.snapshot();
  EXPECT_EQ(run.sites.size(), 4096u);
  EXPECT_EQ(run.transitions.size(), 10'000u);
  EXPECT_EQ(run.facts.size(), 10'000u);
  EXPECT_EQ(run.facts[0].count, 2);
  EXPECT_EQ(run.origins.size(), 1000u);
  EXPECT_EQ(run.warnings.size(), 256u + 5u);
  EXPECT_NE(std::find(run.warnings.begin(), run.warnings.end(),
                      "There are more than 10,000 transitions: later ones are left out."),
            run.warnings.end());
}

TEST(History, HoldsNoMoreRowsAfterAMillionStepsThanAfterTwentyThousand) {
  History history;
  for (int i = 0; i < 6; ++i) history.add_site(hand_made_site(i));
  const StepRow row = hand_made_row(1, 6);
  const auto with_sites = [&] {
    std::size_t values = 0;
    for (const StepRow& one : history.snapshot().rows) values += one.sites.capacity();
    return values;
  };
  std::int64_t most = 0;
  std::size_t early = 0;
  for (std::int64_t step = 0; step < 1'000'000; ++step) {
    StepRow copy = row;
    copy.step = step;
    history.add_row(std::move(copy));
    most = std::max(most, history.rows());
    if (step == 20'000) early = with_sites();
  }
  EXPECT_LE(most, 8192);
  EXPECT_EQ(early, (64 + 512) * 6);
  EXPECT_EQ(with_sites(), early);
}

}  // namespace
}  // namespace firstfault::record
