// The rule label_outlier.
#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

TEST(LabelOutlier, IsSilentWhereOnlyTheTargetsAreUnusual) {
  auto run = learning(100);
  add_site(run, batch(SiteRole::target, "target 0"),
           [](std::int64_t step) { return healthy(step == 60 ? 30 : wobble(step)); });
  EXPECT_FALSE(ask("label_outlier", run));
}

TEST(LabelOutlier, SpeaksWhereADivergenceBeginsWithThem) {
  auto run = diverging(60, 8, 30);
  add_site(run, batch(SiteRole::target, "target 0"),
           [](std::int64_t step) { return healthy(step == 60 ? 1000 : wobble(step)); });
  EXPECT_EQ(ask("label_outlier", run)->onset_step, 60);
}

}  // namespace
}  // namespace firstfault::reason
