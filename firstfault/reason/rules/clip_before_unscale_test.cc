// The rule clip_before_unscale.
#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

TEST(ClipBeforeUnscale, SaysByHowMuchTheGradientsAreTooSmall) {
  auto run = learning(40);
  add_fact(run, FactKind::clipped_scaled, 40, {{"scale", 65536}});
  const auto answer = ask("clip_before_unscale", run);
  ASSERT_TRUE(answer);
  EXPECT_NE(answer->description.find("65536"), std::string::npos);
}

TEST(ClipBeforeUnscale, IsSilentAboutClippingInTheRightPlace) {
  auto run = learning(40);
  add_fact(run, FactKind::clipped, 40, {{"norm", 3}, {"coefficient", 0.3}});
  EXPECT_FALSE(ask("clip_before_unscale", run));
}

}  // namespace
}  // namespace firstfault::reason
