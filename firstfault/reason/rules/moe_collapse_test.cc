// The rule moe_collapse.
#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

Run routing(double share, double experts) {
  auto run = learning(60);
  add_fact(run, FactKind::expert_share, 40, {{"share", share}, {"experts", experts}}).module = "model.router";
  return run;
}

TEST(MoeCollapse, NamesTheRouter) { EXPECT_EQ(ask("moe_collapse", routing(0.97, 8))->module, "model.router"); }

TEST(MoeCollapse, IsSilentAboutUnevenRoutersAndTwoExperts) {
  EXPECT_FALSE(ask("moe_collapse", routing(0.5, 8)));
  EXPECT_FALSE(ask("moe_collapse", routing(0.9, 2)));
}

}  // namespace
}  // namespace firstfault::reason
