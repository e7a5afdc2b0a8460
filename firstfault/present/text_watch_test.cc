// What a person reads about a watched run.
#include <cmath>

#include <gtest/gtest.h>

#include "firstfault/present/causes.h"
#include "firstfault/present/hand_made_run.h"
#include "firstfault/present/html.h"
#include "firstfault/present/text.h"

namespace firstfault::present {
namespace {

using namespace hand_made;

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(HypothesisText, SaysCauseWhereWhyEvidenceAdviceAndHowSure) {
  EXPECT_EQ(
      to_text(lr_too_high()),
      "Learning rate too high: step 14, begun in step 3, optimizer, aten::addmm, module 'model.fc1', parameter "
      "'fc1.weight', sample 5, at train.py:58.\n"
      "  why        each step moved the parameters by 1.6 times their size, and the loss grew 3.1 times per step\n"
      "  evidence   step 3: fc1.weight: update/weight ratio 1.6, above 0.1\n"
      "             Adam, lr 0.5\n"
      "  advice     lower the learning rate by 10 to 30 times\n"
      "  standing   inferred, confidence 0.93   [lr_too_high]");
}

TEST(HypothesisText, ABackwardOpNamesItsForwardOp) {
  Hypothesis one = lr_too_high();
  one.op = "SqrtBackward0";
  one.forward_op = "aten::sqrt";
  one.mechanism = "derivative_at_boundary";
  one.standing = Standing::not_separable;
  const std::string text = to_text(one);
  EXPECT_TRUE(holds(text, "SqrtBackward0, the backward of aten::sqrt, module")) << text;
  EXPECT_TRUE(holds(text, "  mechanism  derivative_at_boundary\n")) << text;
  EXPECT_TRUE(holds(text, "not separable, confidence")) << text;
}

TEST(HypothesisText, LeavesOutWhatIsAbsent) {
  Hypothesis one;
  one.cause = "plateau";
  one.step = 300;
  one.onset_step = 300;
  EXPECT_EQ(to_text(one), "The loss stays on a plateau: step 300.\n  standing   inferred, confidence 0.00   [plateau]");
}

TEST(HypothesisText, TheSiteIsNotSaidTwice) {
  Hypothesis one = lr_too_high();
  one.evidence = {{3, "fc1.weight", "gradient of 'fc1.weight' exploded"}};
  EXPECT_TRUE(holds(to_text(one), "step 3: gradient of 'fc1.weight' exploded\n"));
}

TEST(HypothesisText, NamesCannotDriveTheTerminal) {
  Hypothesis one = lr_too_high();
  for (std::string* text : {&one.cause, &one.phase, &one.op, &one.forward_op, &one.module, &one.param, &one.file,
                            &one.mechanism, &one.description, &one.advice})
    *text = "a\x1b[2J\nb";
  one.evidence = {{1, "\x1b[1m", "\x1b]0;x\x07"}};
  const std::string text = to_text(one);
  EXPECT_FALSE(holds(text, "\x1b"));
  EXPECT_FALSE(holds(text, "\x07"));
  EXPECT_TRUE(holds(text, "module 'a\\x1b[2J\\nb'")) << text;
}

TEST(Causes, AnUnknownOneIsItsOwnName) {
  EXPECT_EQ(words_for_cause("dead_units"), "dead units");
  EXPECT_EQ(words_for_cause("something_new\x1b"), "something new\\x1b");
}

TEST(TransitionText, IsOneLine) {
  const auto run = watched_run();
  EXPECT_EQ(to_text(run.transitions[0], run),
            "step 12: gradient of 'fc1.weight' went from healthy to exploding (4200, usually 0.312), confidence "
            "0.93");
}

TEST(TransitionText, WithoutABaselineOrASiteSaysWhatItCan) {
  auto run = watched_run();
  run.transitions[0].baseline = NAN;
  run.transitions[0].site = 7;
  EXPECT_EQ(to_text(run.transitions[0], run), "step 12: site 7 went from healthy to exploding (4200), confidence 0.93");
  run.transitions[0] = {3, 1, Condition::healthy, Condition::non_finite, 1, NAN, 1};
  EXPECT_EQ(to_text(run.transitions[0], run), "step 3: loss went from healthy to non-finite, confidence 1.00");
}

TEST(SiteText, NamesAnActivationByOpAndModule) {
  Site one;
  one.role = SiteRole::activation;
  one.module = "model.act1";
  one.op = "aten::tanh";
  EXPECT_EQ(to_text(one), "aten::tanh of module 'model.act1'");
  one.op = "";
  EXPECT_EQ(to_text(one), "output of module 'model.act1'");
}

TEST(ExplanationText, OfAHealthyRunIsTheVerdict) {
  firstfault::Run run;
  run.steps = 1000;
  run.state = RunState::complete;
  EXPECT_EQ(to_text(std::span<const Hypothesis>{}, run), "No fault found in 1,000 steps.");
  run.uninspected = {{"device cuda", 2}};
  EXPECT_EQ(to_text(std::span<const Hypothesis>{}, run),
            "No fault found in 1,000 steps.\n\nNot inspected: device cuda, 2 tensors.");
}

TEST(ExplanationText, BeginsWithTheVerdictOnTheLikeliest) {
  const std::vector<Hypothesis> both = {lr_too_high(), lr_too_high()};
  const std::string text = to_text(both, watched_run());
  EXPECT_EQ(text.substr(0, text.find('\n')),
            "Fault in step 14 of 20 steps; the run died: learning rate too high (0.93).");
  EXPECT_EQ(text.find("\n\nLearning rate too high: step 14"), text.find('\n'));
  EXPECT_NE(text.find("Learning rate"), text.rfind("Learning rate"));
}

TEST(ExplanationText, ASpikeAloneIsNoFault) {
  Hypothesis spike = lr_too_high();
  spike.cause = "loss_spike";
  const auto run = watched_run();
  EXPECT_EQ(to_text(std::vector{spike}, run).find("No fault found in 20 steps"), 0U);
  EXPECT_EQ(to_text(std::vector{spike, lr_too_high()}, run).find("Fault in step 14"), 0U);
}

TEST(ExplanationText, WithoutAHypothesisShowsWhatWasSeen) {
  auto run = watched_run();
  const std::string text = to_text(std::span<const Hypothesis>{}, run);
  EXPECT_EQ(text.find("1 transition in 20 steps; the run died, and no cause found.\n"), 0U) << text;
  EXPECT_TRUE(holds(text, "\n  step 12: gradient of 'fc1.weight' went")) << text;
  run.transitions.resize(25, run.transitions[0]);
  EXPECT_TRUE(holds(to_text(std::span<const Hypothesis>{}, run), "  … 15 more"));
  Origin fault;
  fault.op = "aten::log";
  fault.outcome = Outcome::fault;
  run.origins = {fault};
  EXPECT_TRUE(holds(to_text(std::span<const Hypothesis>{}, run), "1 fault in 20 steps"));
  EXPECT_TRUE(holds(to_text(std::span<const Hypothesis>{}, run), "Fault 1 of 1"));
}

TEST(WatchedRunText, IsASummary) {
  auto run = watched_run();
  run.facts = {{.kind = FactKind::loss_broadcast, .detail = "[100, 1] and [100]", .first_step = 0, .count = 20}};
  EXPECT_EQ(to_text(run),
            "No non-finite value did harm in 20 steps, 2 sites watched, 1 transition; died.\n"
            "  loss       2.5 -> 31000\n"
            "  lr         0.5 -> 0.5\n"
            "  seen       loss broadcast, [100, 1] and [100] (since step 0, 20 steps)\n"
            "\n"
            "  step 12: gradient of 'fc1.weight' went from healthy to exploding (4200, usually 0.312), confidence "
            "0.93");
}

TEST(HypothesisHtml, LetsNoMarkupOfANameThrough) {
  Hypothesis one = lr_too_high();
  one.module = "<script>alert(1)</script>";
  for (const std::string& html : {to_html(one), to_html(std::vector{one}, watched_run())}) {
    EXPECT_EQ(html.find("<script"), std::string::npos);
    EXPECT_NE(html.find("&lt;script&gt;"), std::string::npos);
    EXPECT_EQ(html.find("<div class=\"firstfault\"><p><strong>"), 0U);
  }
}

}  // namespace
}  // namespace firstfault::present
