#include "firstfault/events/experiment.h"

#include <gtest/gtest.h>

namespace firstfault {
namespace {

Experiment made() {
  Experiment one;
  one.name = experiment::kSamples;
  one.outcome = ExperimentOutcome::cured;
  one.step = 12;
  one.op = "aten::log";
  one.samples = {3, 200};
  one.size = 2;
  one.replays = 21;
  one.seconds = 0.25;
  one.text = "samples 3, 200: left out";
  return one;
}

TEST(Experiment, AFactGivesBackTheWholeExperiment) {
  const auto read = experiments_of({fact_of(made())});
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].name, "samples");
  EXPECT_EQ(read[0].outcome, ExperimentOutcome::cured);
  EXPECT_EQ(read[0].step, 12);
  EXPECT_EQ(read[0].op, "aten::log");
  EXPECT_EQ(read[0].samples, (std::vector<std::int64_t>{3, 200}));
  EXPECT_EQ(read[0].size, 2);
  EXPECT_EQ(read[0].replays, 21);
  EXPECT_EQ(read[0].seconds, 0.25);
  EXPECT_EQ(read[0].text, "samples 3, 200: left out");
}

TEST(Experiment, FactsOfTwoStepsDiffer) {
  Experiment later = made();
  later.step = 13;
  EXPECT_NE(fact_of(made()).detail, fact_of(later).detail);
}

TEST(Experiment, DamagedNumbersGiveNoOutcomeThatDoesNotExist) {
  Fact fact = fact_of(made());
  fact.numbers["outcome"] = 77;
  fact.numbers["replays"] = -1e300;
  const auto read = experiments_of({fact});
  EXPECT_EQ(read[0].outcome, ExperimentOutcome::not_applicable);
  EXPECT_EQ(read[0].replays, 0);
}

TEST(Experiment, OtherFactsAreNone) { EXPECT_TRUE(experiments_of({Fact{}}).empty()); }

}  // namespace
}  // namespace firstfault
