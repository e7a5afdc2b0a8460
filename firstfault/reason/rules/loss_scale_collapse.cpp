// A GradScaler that finds no scale: step after step is skipped.
#include <algorithm>
#include <cmath>

#include "firstfault/reason/rules/harm.h"
#include "firstfault/reason/rules/rule.h"

namespace firstfault::reason {
namespace {

constexpr double kScaleFloor = 1;   ///< a scale below 1 shrinks the gradients it should enlarge
constexpr std::size_t kSkips = 10;  ///< in a row
constexpr std::size_t kMany = 30;   ///< in a row: a scale that halves has fallen by 1e9 then
constexpr double kHalves = 0.6;     ///< factor per skipped step: slower, and it will not get there
constexpr double kLikely = 0.93;

struct Skips {
  std::size_t steps = 0;
  std::int64_t first = -1;
  double factor = 0.5;  ///< of the scale, per skipped step
  double scale = 0;     ///< after them
};

Skips longest(const std::vector<StepRow>& rows) {
  Skips longest;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= rows.size(); ++i) {
    if (i < rows.size() && passed_over(rows[i])) continue;
    if (i - begin > longest.steps) {
      longest = {i - begin, rows[begin].step, 0.5, rows[i - 1].loss_scale};
      if (longest.steps > 1 && rows[begin].loss_scale > 0)
        longest.factor = std::pow(longest.scale / rows[begin].loss_scale, 1.0 / static_cast<double>(longest.steps - 1));
    }
    begin = i + 1;
  }
  return longest;
}

std::optional<Hypothesis> judge(const Reading& reading) {
  const Skips skips = longest(reading.run().rows);
  if (skips.steps < kSkips || reading.harm().kind == Harm::Kind::fault) return std::nullopt;
  const bool fallen = skips.scale < kScaleFloor;
  const bool slow = skips.factor > kHalves;
  if (!fallen && !slow && skips.steps < kMany) return std::nullopt;
  Hypothesis result;
  result.cause = "loss_scale_collapse";
  result.confidence = kLikely;
  result.step = skips.first;
  result.onset_step = skips.first;
  result.phase = "backward";
  const std::string text = std::to_string(skips.steps) + " steps in a row were skipped, from step " +
                           std::to_string(skips.first) + " on, while the loss scale went to " + brief(skips.scale);
  result.description =
      "No update was made: " + text + ". " +
      (slow ? "It begins far too high and hardly backs off."
            : "The gradients are not finite whatever the scale: the overflow is in the forward or in the model.");
  result.evidence.push_back({skips.first, "", text});
  result.advice = slow ? "use the GradScaler's own initial scale and backoff factor (65536 and 0.5)."
                       : "find the op that overflows float16 and run it in float32, or use bfloat16.";
  return result;
}

std::string condition() {
  return std::to_string(kSkips) + " steps or more in a row were skipped, and the loss scale fell below " +
         brief(kScaleFloor) + ", or by less than a factor of " + brief(kHalves) + " per step, or there were " +
         std::to_string(kMany);
}

}  // namespace

namespace list {
extern const Rule loss_scale_collapse;
const Rule loss_scale_collapse{.name = "loss_scale_collapse",
                               .symptom = "float16 training that makes no update: every step is skipped",
                               .condition = condition,
                               .evidence = "Skipped steps and the loss scale over them.",
                               .advice = "The GradScaler's defaults; float32 for the op that overflows; bfloat16.",
                               .source =
                                   "torch.amp.GradScaler: halves at each skip, so that 16 skips take it from 65536 "
                                   "to 1",
                               .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
