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

/// "step: detail" of each fact.
std::vector<std::string> facts_of(int steps, const std::function<bool(int)>& clipped,
                                  const std::function<std::string(int)>& name = {}) {
  ClipTrend trend;
  std::vector<std::string> facts;
  for (int step = 0; step < steps; ++step) {
    for (const Fact& fact : trend.observe(clip_of(name ? name(step) : "fc", name ? 0.9 : 0.4), clipped(step))) {
      facts.push_back(std::to_string(step) + ": " + fact.detail);
    }
  }
  return facts;
}

TEST(ClipTrend, AClipNowAndThenIsNothing) {
  EXPECT_TRUE(facts_of(2000, [](int step) { return step % 20 == 0; }).empty());
}

TEST(ClipTrend, MoreThanHalfOfTheStepsIsChronicAndIsSaidOnce) {
  EXPECT_EQ(facts_of(2000, [](int) { return true; }), std::vector<std::string>{"99: chronic"});
}

TEST(ClipTrend, AShareThatRisesIsSaidBeforeItIsChronic) {
  const auto facts = facts_of(600, [](int step) { return step < 300 ? step % 20 == 0 : true; });
  ASSERT_EQ(facts.size(), 2u);
  EXPECT_EQ(facts[0], "315: rising");
  EXPECT_EQ(facts[1], "348: chronic");
}

TEST(ClipTrend, AfterItHasEndedItCanBeginAgain) {
  const auto facts = facts_of(1200, [](int step) { return step < 300 || step >= 800; });
  EXPECT_EQ(facts, (std::vector<std::string>{"99: chronic", "850: chronic"}));
}

TEST(ClipTrend, OneParameterBehindMostClipsIsNamed) {
  const auto rare = [](int step) { return step % 4 == 0; };
  EXPECT_EQ(facts_of(300, rare, [](int) { return std::string("head"); }), std::vector<std::string>{"76: head"});
  EXPECT_TRUE(facts_of(300, rare, [](int step) { return "layer" + std::to_string(step / 4 % 3); }).empty());
}

}  // namespace
}  // namespace firstfault::guard
