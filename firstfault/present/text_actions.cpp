// Words for what a guard did: each measure in a sentence, clips counted in one.
#include <algorithm>

#include <fmt/format.h>

#include "firstfault/base/names.h"
#include "firstfault/present/text.h"
#include "firstfault/present/text_parts.h"

namespace firstfault::present {
namespace {

constexpr std::size_t kEnd = 4;  // of many measures, as many at the beginning and at the end are told

std::string clip_text(const GuardAction& clip) {
  std::string text =
      fmt::format("step {}, norm {} to {}", clip.step, short_number(clip.norm), short_number(clip.limit));
  if (clip.largest.empty() || clip.largest.front().name.empty()) return text;
  return text + fmt::format(" ({:.0f} % {})", 100 * clip.largest.front().share, printable(clip.largest.front().name));
}

/// All of them, also those that were no longer kept one by one.
std::int64_t steps_clipped(const Run& run) {
  const auto is_clip = [](const GuardAction& action) { return action.kind == GuardAction::Kind::clip; };
  auto most = static_cast<std::int64_t>(std::count_if(run.actions.begin(), run.actions.end(), is_clip));
  for (const Fact& fact : run.facts) {
    if (fact.kind == FactKind::clipped && most > 0) most = std::max(most, fact.count);
  }
  return most;
}

}  // namespace

std::string to_text(const GuardAction& action) {
  if (action.kind == GuardAction::Kind::clip) return "clipped: " + clip_text(action);
  constexpr std::string_view kDone[] = {"clipped", "skipped", "rolled back", "stopped", "let pass"};
  std::string text =
      fmt::format("step {}: {}, {}", action.step, kDone[static_cast<int>(action.kind)], printable(action.reason));
  if (action.undone == "copy") text += "; undone from a copy";
  if (action.snapshot >= 0)
    text += fmt::format("; back to step {}, {} lost", action.snapshot, plural(action.lost, "step"));
  return text;
}

std::vector<std::string> actions_text(const Run& run) {
  std::vector<std::string> told;
  const GuardAction* last_clip = nullptr;
  for (const GuardAction& action : run.actions) {
    if (action.kind == GuardAction::Kind::clip) {
      last_clip = &action;
    } else {
      told.push_back(to_text(action));
    }
  }
  if (told.size() > 2 * kEnd) {
    const auto first = told.begin() + kEnd, last = told.end() - kEnd;
    *first = fmt::format("… {} more", last - first);
    told.erase(first + 1, last);
  }
  if (last_clip != nullptr)
    told.push_back(fmt::format("{} clipped; the last: {}", plural(steps_clipped(run), "step"), clip_text(*last_clip)));
  return told;
}

std::string action_lines(const Run& run) {
  std::string text;
  for (const std::string& one : actions_text(run)) text += line(text.empty() ? "guard" : "", one);
  return text;
}

}  // namespace firstfault::present
