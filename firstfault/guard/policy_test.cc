#include "firstfault/guard/policy.h"

#include <gtest/gtest.h>

namespace firstfault::guard {
namespace {

constexpr Situation kRefused{.has_snapshot = true, .would_lose = 5};

TEST(Policy, RaiseStopsAtTheFirstFault) {
  Policy policy({.on_fault = OnFault::raise});
  EXPECT_EQ(policy.faulty(kRefused), Action::stop);
}

TEST(Policy, SkipsInARowEndAtTheirLimitAndAHealthyStepBeginsANewRow) {
  Policy policy({.on_fault = OnFault::skip, .max_consecutive_skips = 2});
  EXPECT_EQ(policy.faulty(kRefused), Action::skip);
  EXPECT_EQ(policy.faulty(kRefused), Action::skip);
  policy.healthy();
  EXPECT_EQ(policy.faulty(kRefused), Action::skip);
  EXPECT_EQ(policy.skips_in_a_row(), 1);
  EXPECT_EQ(policy.faulty(kRefused), Action::skip);
  EXPECT_EQ(policy.faulty(kRefused), Action::stop);
}

TEST(Policy, AfterTheLastSkipItRollsBackWhereAsked) {
  Policy policy({.on_fault = OnFault::skip, .max_consecutive_skips = 1, .after_skips = OnFault::rollback});
  EXPECT_EQ(policy.faulty(kRefused), Action::skip);
  EXPECT_EQ(policy.faulty(kRefused), Action::rollback);
  EXPECT_EQ(policy.faulty(kRefused), Action::skip);
}

TEST(Policy, AThousandFaultyStepsAlwaysEnd) {
  for (const auto after : {OnFault::raise, OnFault::rollback}) {
    for (const auto on : {OnFault::raise, OnFault::skip, OnFault::rollback}) {
      Policy policy({.on_fault = on, .after_skips = after});
      int steps = 0;
      while (policy.faulty(kRefused) != Action::stop && steps < 1000) ++steps;
      EXPECT_LT(steps, 100);
    }
  }
}

TEST(Policy, RollingBackWithoutEverGettingPastTheFaultEnds) {
  Policy policy({.on_fault = OnFault::rollback, .max_rollbacks = 3});
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(policy.faulty(kRefused), Action::rollback);
    for (int step = 0; step < 5; ++step) policy.healthy();  // the step after these is the one that failed
  }
  EXPECT_EQ(policy.faulty(kRefused), Action::stop);
}

TEST(Policy, AFaultAfterTheLostStepsWereMadeGoodIsAnotherOne) {
  Policy policy({.on_fault = OnFault::rollback, .max_rollbacks = 1});
  EXPECT_EQ(policy.faulty(kRefused), Action::rollback);
  for (int step = 0; step < 6; ++step) policy.healthy();
  EXPECT_EQ(policy.rollbacks(), 0);
  EXPECT_EQ(policy.faulty(kRefused), Action::rollback);
}

TEST(Policy, WhatIsWrittenIsUndoneFromACopyElseByASnapshotElseItStops) {
  const PolicyOptions skip{.on_fault = OnFault::skip};
  EXPECT_EQ(Policy(skip).faulty({.written = true, .can_undo = true}), Action::skip);
  EXPECT_EQ(Policy(skip).faulty({.written = true, .has_snapshot = true}), Action::rollback);
  EXPECT_EQ(Policy(skip).faulty({.written = true}), Action::stop);
}

TEST(Policy, WarnNeverStops) {
  Policy policy({.on_fault = OnFault::warn});
  for (int i = 0; i < 100; ++i) EXPECT_EQ(policy.faulty({}), Action::warn);
}

}  // namespace
}  // namespace firstfault::guard
