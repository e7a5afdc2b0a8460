// What a person reads about the measures of a guard.
#include <gtest/gtest.h>

#include "firstfault/present/hand_made_run.h"
#include "firstfault/present/html.h"
#include "firstfault/present/text.h"

namespace firstfault::present {
namespace {

using namespace hand_made;

GuardAction measure(std::int64_t step, GuardAction::Kind kind, const std::string& reason = "the loss is NaN") {
  GuardAction action;
  action.step = step;
  action.kind = kind;
  action.fault = "loss";
  action.reason = reason;
  return action;
}

GuardAction clip(std::int64_t step, const std::string& name = "fc.weight") {
  GuardAction action;
  action.step = step;
  action.norm = 8;
  action.limit = 1;
  action.largest = {{name, 0.9}, {"other", 0.1}};
  return action;
}

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(ActionText, EachMeasureIsASentence) {
  GuardAction back = measure(30, GuardAction::Kind::rollback);
  back.snapshot = 25;
  back.lost = 5;
  EXPECT_EQ(to_text(back), "step 30: rolled back, the loss is NaN; back to step 25, 5 steps lost");
  GuardAction undone = measure(3, GuardAction::Kind::skip, "the optimizer wrote values that are not finite into 'a'");
  undone.undone = "copy";
  EXPECT_EQ(to_text(undone),
            "step 3: skipped, the optimizer wrote values that are not finite into 'a'; undone from a copy");
  EXPECT_EQ(to_text(measure(4, GuardAction::Kind::stop)), "step 4: stopped, the loss is NaN");
  EXPECT_EQ(to_text(measure(5, GuardAction::Kind::warn)), "step 5: let pass, the loss is NaN");
}

TEST(ActionText, ClipsAreCountedInOneLine) {
  firstfault::Run run;
  for (int step = 0; step < 9; ++step) run.actions.push_back(clip(step));
  EXPECT_EQ(actions_text(run),
            std::vector<std::string>{"9 steps clipped; the last: step 8, norm 8 to 1 (90 % fc.weight)"});
  Fact all;  // those beyond the cap are counted there
  all.kind = FactKind::clipped;
  all.count = 20'000;
  run.facts.push_back(all);
  EXPECT_TRUE(holds(actions_text(run).at(0), "20,000 steps clipped"));
}

TEST(ActionText, OfManyMeasuresTheFirstAndTheLastAreTold) {
  firstfault::Run run;
  for (int step = 0; step < 20; ++step) run.actions.push_back(measure(step, GuardAction::Kind::skip));
  run.actions.insert(run.actions.begin() + 3, clip(2));
  const auto told = actions_text(run);
  ASSERT_EQ(told.size(), 10u);
  EXPECT_TRUE(holds(told[3], "step 3:"));
  EXPECT_EQ(told[4], "… 12 more");
  EXPECT_TRUE(holds(told[5], "step 16:"));
  EXPECT_TRUE(holds(told[9], "1 step clipped"));
}

TEST(ActionText, ARunAndItsExplanationSayWhatAGuardDidAndOthersSayNothingOfOne) {
  auto run = watched_run();
  run.actions.clear();
  const std::vector<Hypothesis> found = {lr_too_high()};
  for (const std::string& text : {to_text(run), to_text(found, run), to_text(std::span<const Hypothesis>{}, run)})
    EXPECT_FALSE(holds(text, "  guard "));
  run.actions = {measure(12, GuardAction::Kind::skip), clip(13)};
  for (const std::string& text : {to_text(run), to_text(found, run), to_text(std::span<const Hypothesis>{}, run)}) {
    EXPECT_TRUE(holds(text, "  guard      step 12: skipped, the loss is NaN\n")) << text;
    EXPECT_TRUE(holds(text, "             1 step clipped; the last: step 13, norm 8 to 1 (90 % fc.weight)")) << text;
  }
}

TEST(ActionText, NamesCanDriveNeitherTheTerminalNorThePage) {
  auto run = watched_run();
  run.actions = {measure(12, GuardAction::Kind::skip, "gradient of '<b>\x1b[2J' is NaN"), clip(13, "<script>\x1b[1m")};
  EXPECT_FALSE(holds(to_text(run), "\x1b"));
  EXPECT_TRUE(holds(to_text(run), "gradient of '<b>\\x1b[2J' is NaN"));
  for (const std::string& html : {to_html(run), to_html(std::span<const Hypothesis>{}, run)}) {
    EXPECT_FALSE(holds(html, "<b>") || holds(html, "<script") || holds(html, "\x1b"));
    EXPECT_TRUE(holds(html, "&lt;b&gt;\\x1b[2J"));
  }
}

}  // namespace
}  // namespace firstfault::present
