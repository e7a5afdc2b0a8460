#include "firstfault/guard/policy.h"

#include <gtest/gtest.h>

namespace firstfault::guard {
namespace {

constexpr Situation kRefused{.has_snapshot = true, .would_lose = 5};

TEST(Policy, RaiseStopsAtTheFirstFault) {
  Policy policy({.on_fault = OnFault::raise});
  EXPECT_EQ(policy.faulty(kRefused).action, Action::stop);
}

TEST(Policy, SkipsInARowEndAtTheirLimitAndAHealthyStepBeginsANewRow) {
  Policy policy({.on_fault = OnFault::skip, .max_consecutive_skips = 2});
  EXPECT_EQ(policy.faulty(kRefused).action, Action::skip);
  EXPECT_EQ(policy.faulty(kRefused).action, Action::skip);
  policy.healthy();
  EXPECT_EQ(policy.faulty(kRefused).action, Action::skip);
  EXPECT_EQ(policy.skips_in_a_row(), 1);
  EXPECT_EQ(policy.faulty(kRefused).action, Action::skip);
  EXPECT_EQ(policy.faulty(kRefused).action, Action::stop);
}

TEST(Policy, AfterTheLastSkipItRollsBackWhereAsked) {
  Policy policy({.on_fault = OnFault::skip, .max_consecutive_skips = 1, .after_skips = OnFault::rollback});
  EXPECT_EQ(policy.faulty(kRefused).action, Action::skip);
  EXPECT_EQ(policy.faulty(kRefused).action, Action::rollback);
  EXPECT_EQ(policy.faulty(kRefused).action, Action::skip);
}

TEST(Policy, AThousandFaultyStepsAlwaysEnd) {
  for (const auto after : {OnFault::raise, OnFault::rollback}) {
    for (const auto on : {OnFault::raise, OnFault::skip, OnFault::rollback}) {
      Policy policy({.on_fault = on, .after_skips = after});
      int steps = 0;
      while (policy.faulty(kRefused).action != Action::stop && steps < 1000) ++steps;
      EXPECT_LT(steps, 100);
    }
  }
}

TEST(Policy, RollingBackWithoutEverGettingPastTheFaultEnds) {
  Policy policy({.on_fault = OnFault::rollback, .max_rollbacks = 3});
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(policy.faulty(kRefused).action, Action::rollback);
    for (int step = 0; step < 5; ++step) policy.healthy();  // the step after these is the one that failed
  }
  EXPECT_EQ(policy.faulty(kRefused).action, Action::stop);
}

TEST(Policy, AFaultAfterTheLostStepsWereMadeGoodIsAnotherOne) {
  Policy policy({.on_fault = OnFault::rollback, .max_rollbacks = 1});
  EXPECT_EQ(policy.faulty(kRefused).action, Action::rollback);
  for (int step = 0; step < 6; ++step) policy.healthy();
  EXPECT_EQ(policy.rollbacks(), 0);
  EXPECT_EQ(policy.faulty(kRefused).action, Action::rollback);
}

TEST(Policy, WhatIsWrittenIsUndoneFromACopyElseByASnapshotElseItStops) {
  const PolicyOptions skip{.on_fault = OnFault::skip};
  EXPECT_EQ(Policy(skip).faulty({.written = true, .can_undo = true}).action, Action::skip);
  EXPECT_EQ(Policy(skip).faulty({.written = true, .has_snapshot = true}).action, Action::rollback);
  EXPECT_EQ(Policy(skip).faulty({.written = true}).action, Action::stop);
}

TEST(Policy, WhatAStopHasWrittenIsTakenBackToo) {
  const PolicyOptions raise{.on_fault = OnFault::raise};
  EXPECT_EQ(Policy(raise).faulty({.written = true, .can_undo = true, .has_snapshot = true}),
            (Measure{Action::stop, false, "copy"}));
  EXPECT_EQ(Policy(raise).faulty({.written = true, .has_snapshot = true}), (Measure{Action::stop, true, "snapshot"}));
  EXPECT_EQ(Policy(raise).faulty({.written = true}), (Measure{Action::stop, false, ""}));
}

TEST(Policy, ARollbackOfARefusedStepHasNothingToUndoAndAWarningUndoesNothing) {
  EXPECT_EQ(Policy({.on_fault = OnFault::rollback}).faulty(kRefused), (Measure{Action::rollback, true, ""}));
  EXPECT_EQ(Policy({.on_fault = OnFault::warn}).faulty({.written = true, .can_undo = true}),
            (Measure{Action::warn, false, ""}));
}

TEST(Policy, ASnapshotThatLedToTheSamePlaceIsGivenUpForTheOneBeforeIt) {
  Policy policy({.on_fault = OnFault::rollback});
  EXPECT_FALSE(policy.snapshot_to_use(0));
  EXPECT_EQ(policy.snapshot_to_use(3), 2u);
  policy.faulty(kRefused);
  EXPECT_EQ(policy.snapshot_to_use(3), 1u);
  EXPECT_EQ(policy.snapshot_to_use(1), 0u);
}

TEST(Policy, AStopSaysWhatCameBeforeIt) {
  Policy skips({.on_fault = OnFault::skip, .max_consecutive_skips = 2});
  for (int i = 0; i < 3; ++i) skips.faulty(kRefused);
  EXPECT_EQ(skips.why_stopped(kRefused), ", after 2 steps in a row were skipped");
  Policy rollbacks({.on_fault = OnFault::rollback, .max_rollbacks = 1});
  for (int i = 0; i < 2; ++i) rollbacks.faulty(kRefused);
  EXPECT_EQ(rollbacks.why_stopped(kRefused), ", after a rollback that led to the same place");
  EXPECT_EQ(Policy({.on_fault = OnFault::rollback}).why_stopped({}), ", and there is no snapshot to roll back to");
  EXPECT_EQ(Policy({.on_fault = OnFault::raise}).why_stopped({.written = true}), "");
}

TEST(Policy, WarnNeverStops) {
  Policy policy({.on_fault = OnFault::warn});
  for (int i = 0; i < 100; ++i) EXPECT_EQ(policy.faulty({}).action, Action::warn);
}

}  // namespace
}  // namespace firstfault::guard
