// A value from a compiled region.
#include "firstfault/reason/mechanisms/hand_made.h"

#include <gtest/gtest.h>

namespace firstfault::reason::hand_made {
namespace {

TEST(CompiledRegion, SaysThatItsOpsAreInvisibleAndHowToSeeThem) {
  OriginEvidence evidence = forward("CompiledFunction", kNaN, {});
  evidence.role = TensorRole::compiled;
  evidence.role_name = "in module 'model'";
  const auto verdict = ask("compiled_region", evidence);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->because,
            "the NaN came out of a compiled region, in module 'model', whose ops are fused and invisible to a trace; "
            "first at [2, 17]");
  EXPECT_TRUE(contains(verdict->advice, "force_eager"));
}

TEST(CompiledRegion, IsSilentOnTheBatch) {
  OriginEvidence evidence = forward("aten::mm", kNaN, {});
  evidence.role = TensorRole::batch;
  EXPECT_FALSE(ask("compiled_region", evidence));
}

}  // namespace
}  // namespace firstfault::reason::hand_made
