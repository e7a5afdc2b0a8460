#include "firstfault/guard/failing_set.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <gtest/gtest.h>

namespace firstfault::guard {
namespace {

using Samples = std::vector<std::int64_t>;

bool holds(const Samples& samples, const Samples& wanted) {
  return std::includes(samples.begin(), samples.end(), wanted.begin(), wanted.end());
}

// Fails where any of these sets is there as a whole; counts.
Fails of(std::vector<Samples> sets, int& calls) {
  return [sets = std::move(sets), &calls](const Samples& samples) -> std::optional<bool> {
    ++calls;
    return std::any_of(sets.begin(), sets.end(), [&](const Samples& set) { return holds(samples, set); });
  };
}

double most_calls(double k, double n) { return 2 * k * std::log2(n) + k; }

TEST(FailingSet, EverySingleBadSampleIsNamedWithinTheBound) {
  for (std::int64_t bad = 0; bad < 256; ++bad) {
    int calls = 0;
    const auto found = smallest_failing_sets(256, of({{bad}}, calls));
    ASSERT_EQ(found.blame, Blame::some);
    ASSERT_EQ(found.sets, (std::vector<Samples>{{bad}}));
    ASSERT_LE(calls, most_calls(1, 256));
    ASSERT_EQ(calls, found.calls);
  }
}

TEST(FailingSet, TwoAndFiveIndependentSamplesAreNamedWithinTheBound) {
  for (const Samples& bad : {Samples{3, 200}, Samples{0, 255}, Samples{128, 129}, Samples{0, 64, 100, 192, 255},
                             Samples{10, 11, 12, 13, 14}}) {
    std::vector<Samples> sets;
    for (const auto one : bad) sets.push_back({one});
    int calls = 0;
    const auto found = smallest_failing_sets(256, of(sets, calls));
    ASSERT_EQ(found.blame, Blame::some);
    EXPECT_EQ(found.samples(), bad);
    EXPECT_EQ(found.sets.size(), bad.size());
    EXPECT_LE(calls, most_calls(static_cast<double>(bad.size()), 256));
  }
}

TEST(FailingSet, TwoSamplesThatFailOnlyTogetherAreOneSet) {
  int calls = 0;
  const auto found = smallest_failing_sets(256, of({{17, 201}}, calls));
  EXPECT_EQ(found.sets, (std::vector<Samples>{{17, 201}}));
  EXPECT_LE(calls, most_calls(2, 256));
}

TEST(FailingSet, APairAndASingleSampleAreToldApart) {
  int calls = 0;
  const auto found = smallest_failing_sets(64, of({{5, 40}, {20}}, calls));
  ASSERT_EQ(found.sets.size(), 2u);
  EXPECT_EQ(std::set<Samples>(found.sets.begin(), found.sets.end()), (std::set<Samples>{{5, 40}, {20}}));
}

TEST(FailingSet, WhereEverySampleFailsNoneIsNamed) {
  std::vector<Samples> sets;
  for (std::int64_t i = 0; i < 256; ++i) sets.push_back({i});
  int calls = 0;
  const auto found = smallest_failing_sets(256, of(sets, calls));
  EXPECT_EQ(found.blame, Blame::all);
  EXPECT_TRUE(found.sets.empty());
  EXPECT_LE(calls, 5);
}

TEST(FailingSet, WhereAllAreNeededOrMostNoneIsNamedInFewCalls) {
  for (const std::int64_t n : {4, 16, 256}) {
    Samples all;
    for (std::int64_t i = 0; i < n; ++i) all.push_back(i);
    int calls = 0;
    const auto found = smallest_failing_sets(n, of({all}, calls));
    EXPECT_EQ(found.blame, Blame::together);
    EXPECT_TRUE(found.samples().empty());
    EXPECT_LE(calls, 12);
  }
}

TEST(FailingSet, WhereMostOfASmallBatchFailsNoneIsNamed) {
  int calls = 0;
  const auto found = smallest_failing_sets(4, of({{0}, {1}, {3}}, calls));
  EXPECT_EQ(found.blame, Blame::all);
  EXPECT_TRUE(found.samples().empty());
}

TEST(FailingSet, AStepThatFailsWithoutAnySampleIsNotTheSamplesDoing) {
  int calls = 0;
  const auto found = smallest_failing_sets(256, of({{}}, calls));
  EXPECT_EQ(found.blame, Blame::none);
  EXPECT_EQ(calls, 1);
}

TEST(FailingSet, AStepThatDoesNotFailWithAllHasNoSet) {
  int calls = 0;
  EXPECT_EQ(smallest_failing_sets(256, of({}, calls)).blame, Blame::none);
  EXPECT_EQ(calls, 2);
}

TEST(FailingSet, AKnownAnswerForNoSampleIsNotAskedAgain) {
  int calls = 0;
  std::set<std::size_t> sizes;
  const Fails fails = [&](const Samples& samples) -> std::optional<bool> {
    ++calls, sizes.insert(samples.size());
    return holds(samples, {7});
  };
  EXPECT_EQ(smallest_failing_sets(16, fails, false).samples(), Samples{7});
  EXPECT_EQ(sizes.count(0), 0u);
}

TEST(FailingSet, AQuestionWithoutAnAnswerEndsTheSearch) {
  int calls = 0;
  const Fails fails = [&](const Samples& samples) -> std::optional<bool> {
    if (++calls == 5) return std::nullopt;
    return holds(samples, {7});
  };
  const auto found = smallest_failing_sets(256, fails);
  EXPECT_EQ(found.blame, Blame::undecided);
  EXPECT_TRUE(found.sets.empty());
  EXPECT_EQ(calls, 5);
}

TEST(FailingSet, AnEmptyBatchAndOneSampleNeedNoSearch) {
  int calls = 0;
  EXPECT_EQ(smallest_failing_sets(0, of({{}}, calls)).blame, Blame::none);
  EXPECT_EQ(smallest_failing_sets(1, of({{0}}, calls)).blame, Blame::all);
}

}  // namespace
}  // namespace firstfault::guard
