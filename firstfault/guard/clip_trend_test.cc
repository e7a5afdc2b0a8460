#include "firstfault/guard/clip_trend.h"

#include <functional>

#include <gtest/gtest.h>

namespace firstfault::guard {
namespace {

GuardAction clip_of(const std::string& parameter, double share) {
  GuardAction clip;
  clip.largest = {{parameter, share}, {"other", 1 - share}};
  return clip;
}

/// "step parameter: from > to" of each change.
std::vector<std::string> changes_of(int steps, const std::function<bool(int)>& clipped,
                                    const std::function<std::string(int)>& name = {}) {
  ClipTrend trend;
  std::vector<std::string> changes;
  for (int step = 0; step < steps; ++step) {
    GuardAction clip = clip_of(name ? name(step) : "fc", name ? 0.9 : 0.4);
    clip.step = step;
    for (const auto& [parameter, one] : trend.observe(clip, clipped(step))) {
      changes.push_back(std::to_string(one.step) + " " + parameter + ": " + std::string(name_of(one.from)) + " > " +
                        std::string(name_of(one.to)));
    }
  }
  return changes;
}

using Changes = std::vector<std::string>;

TEST(ClipTrend, AClipNowAndThenIsNothing) {
  EXPECT_EQ(changes_of(2000, [](int step) { return step % 20 == 0; }), Changes{});
}

TEST(ClipTrend, MoreThanHalfOfTheStepsIsChronicAndIsSaidOnce) {
  EXPECT_EQ(changes_of(2000, [](int) { return true; }), Changes{"99 : healthy > chronic"});
}

TEST(ClipTrend, AShareThatRisesIsSaidBeforeItIsChronic) {
  EXPECT_EQ(changes_of(600, [](int step) { return step < 300 ? step % 20 == 0 : true; }),
            (Changes{"315 : healthy > rising", "348 : rising > chronic"}));
}

TEST(ClipTrend, AfterItHasEndedItCanBeginAgain) {
  EXPECT_EQ(changes_of(1200, [](int step) { return step < 300 || step >= 800; }),
            (Changes{"99 : healthy > chronic", "374 : chronic > healthy", "850 : healthy > chronic"}));
}

TEST(ClipTrend, AShareThatFallsIsNotCalledRising) {
  EXPECT_EQ(changes_of(900, [](int step) { return step < 300 || step >= 400 ? step % 20 == 0 : true; }),
            (Changes{"315 : healthy > rising", "348 : rising > chronic", "478 : chronic > healthy"}));
}

TEST(ClipTrend, AShareAboutTheLimitIsSaidOnce) {
  const auto wavers = [](int step) { return step % 2 == 0 || step % 200 < 10; };  // 0.50 to 0.55
  EXPECT_EQ(changes_of(3000, wavers), Changes{"99 : healthy > chronic"});
}

TEST(ClipTrend, HasTheShareAndTheShareThatItWas) {
  ClipTrend trend;
  std::vector<ClipChange> changes;
  for (int step = 0; step < 600; ++step) {
    for (auto& one : trend.observe(clip_of("fc", 0.4), step < 300 ? step % 20 == 0 : true))
      changes.push_back(std::move(one));
  }
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_DOUBLE_EQ(changes[0].transition.value, 0.2);
  EXPECT_DOUBLE_EQ(changes[0].transition.baseline, 0.05);
}

TEST(ClipTrend, OneParameterBehindMostClipsIsNamed) {
  const auto rare = [](int step) { return step % 4 == 0; };
  EXPECT_EQ(changes_of(300, rare, [](int) { return std::string("head"); }), Changes{"76 head: healthy > dominant"});
  EXPECT_EQ(changes_of(300, rare, [](int step) { return "layer" + std::to_string(step / 4 % 3); }), Changes{});
  EXPECT_EQ(changes_of(400, rare, [](int step) { return std::string(step < 200 ? "head" : "tail"); }),
            (Changes{"76 head: healthy > dominant", "260 head: dominant > healthy", "276 tail: healthy > dominant"}));
}

}  // namespace
}  // namespace firstfault::guard
