// Hysteresis, one reading at a time.
#include "firstfault/detect/state_machine.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace firstfault::detect {
namespace {

Reading reading(Condition condition, bool enter, bool stay) {
  Reading one;
  one.condition = condition;
  one.enter = enter;
  one.stay = stay;
  one.enter_steps = 3;
  one.leave_steps = 2;
  one.value = enter ? 10 : stay ? 5 : 1;
  one.confidence = 0.8;
  return one;
}

/// '#': over enter, '-': between the two thresholds, '.': below both. What changed, one letter a step.
std::string course(StateMachine& machine, const std::string& steps, Condition condition = Condition::saturated) {
  std::string changes;
  for (const char step : steps) {
    const auto change = machine.update(std::vector{reading(condition, step == '#', step != '.')});
    changes += !change ? '.' : change->to == Condition::healthy ? 'h' : '!';
  }
  return changes;
}

TEST(StateMachine, EntersAfterEnoughConsecutiveSteps) {
  StateMachine machine;
  EXPECT_EQ(course(machine, "##.##-###"), "........!");
  EXPECT_EQ(machine.state(), Condition::saturated);
}

TEST(StateMachine, FlappingAroundTheEnterThresholdIsOneEvent) {
  StateMachine machine;
  EXPECT_EQ(course(machine, "###-#-#--#-#-####-#-"), "..!.................");
}

TEST(StateMachine, LeavesAfterEnoughConsecutiveStepsBelowTheLowerThreshold) {
  StateMachine machine;
  EXPECT_EQ(course(machine, "###.-.-.."), "..!.....h");
  EXPECT_EQ(machine.state(), Condition::healthy);
}

TEST(StateMachine, OneStepIsEnoughWhereTheReadingSaysSo) {
  StateMachine machine;
  Reading far = reading(Condition::exploding, true, true);
  far.at_once = true;
  far.baseline = 0.5;
  const auto change = machine.update(std::vector{far});
  ASSERT_TRUE(change);
  EXPECT_EQ(change->from, Condition::healthy);
  EXPECT_EQ(change->to, Condition::exploding);
  EXPECT_EQ(change->value, 10);
  EXPECT_EQ(change->baseline, 0.5);
  EXPECT_EQ(change->confidence, 0.8);
}

TEST(StateMachine, AWorseConditionTakesOverAndALesserOneDoesNot) {
  StateMachine machine;
  course(machine, "###");
  Reading bad = reading(Condition::non_finite, true, true);
  bad.at_once = true;
  const auto worse = machine.update(std::vector{reading(Condition::saturated, true, true), bad});
  ASSERT_TRUE(worse);
  EXPECT_EQ(worse->from, Condition::saturated);
  EXPECT_EQ(worse->to, Condition::non_finite);
  EXPECT_EQ(course(machine, "#####"), ".....");  // without a reading of its own it is not left
  EXPECT_EQ(machine.state(), Condition::non_finite);
}

TEST(StateMachine, LeavesForTheLesserConditionThatStillHolds) {
  StateMachine machine;
  Reading bad = reading(Condition::non_finite, true, true);
  bad.at_once = true;
  machine.update(std::vector{bad});
  const std::vector<Reading> after = {reading(Condition::non_finite, false, false),
                                      reading(Condition::saturated, true, true)};
  EXPECT_FALSE(machine.update(after));
  EXPECT_EQ(machine.update(after)->to, Condition::healthy);  // left after two, and the other takes three
  const auto change = machine.update(after);
  ASSERT_TRUE(change);
  EXPECT_EQ(change->to, Condition::saturated);
}

TEST(StateMachine, AStepInWhichAConditionWasNotMeasuredChangesNoCount) {
  StateMachine machine;
  course(machine, "##");
  EXPECT_FALSE(machine.update({}));
  EXPECT_EQ(course(machine, "#"), "!");
}

}  // namespace
}  // namespace firstfault::detect
