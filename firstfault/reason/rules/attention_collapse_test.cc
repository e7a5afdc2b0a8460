// The rule attention_collapse.
#include <gtest/gtest.h>

#include "firstfault/reason/rules/hand_made_run.h"

namespace firstfault::reason {
namespace {

using namespace hand_made;

Run attending(Run run, double entropy, double score) {
  add_fact(run, FactKind::attention, 40, {{"logit_max", score}, {"entropy", entropy}, {"keys", 64}}).module =
      "model.attn";
  return run;
}

TEST(AttentionCollapse, SpeaksWhereAttentionIsOneHotAndNothingIsLearnt) {
  EXPECT_EQ(ask("attention_collapse", attending(flat(60), 0.001, 900))->module, "model.attn");
}

TEST(AttentionCollapse, IsSilentAboutSharpAttentionThatLearnsAndAboutSoftAttention) {
  EXPECT_FALSE(ask("attention_collapse", attending(learning(60), 0.001, 900)));
  EXPECT_FALSE(ask("attention_collapse", attending(flat(60), 2, 10)));
}

}  // namespace
}  // namespace firstfault::reason
