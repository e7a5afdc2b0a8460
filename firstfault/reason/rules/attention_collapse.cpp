// Attention that looks at one key only, with scores that keep growing.
#include <cmath>

#include "firstfault/reason/rules/rule.h"

namespace firstfault::reason {
namespace {

constexpr double kEntropy = 0.01;  ///< of ln(keys)
constexpr double kScore = 100;     ///< largest attention score
constexpr std::int64_t kSteps = 20;
constexpr double kLearnt = 0.5;  ///< last loss over first: what learns this much may attend as it likes
constexpr double kLargeUpdate = 0.1;
constexpr double kLikely = 0.91;
constexpr double kPerhaps = 0.3;

/// Updates this large drive attention there: then they are the cause.
bool thrown_about(const Reading& reading) {
  const Series update = reading.series(&StepRow::update_ratio);
  return !update.empty() && quantile(values_of(update), 0.9) >= kLargeUpdate;
}

/// Before any step could have driven it there.
bool from_start(const Fact& fact) {
  return Reading::number(fact, "entropy_first") <= kEntropy * std::log(Reading::number(fact, "keys")) &&
         Reading::number(fact, "logit_max_first") >= kScore;
}

bool collapsed(const Fact& fact) {
  const double entropy = Reading::number(fact, "entropy");
  const double keys = Reading::number(fact, "keys");
  return fact.count >= kSteps && keys > 1 && entropy <= kEntropy * std::log(keys) &&
         Reading::number(fact, "logit_max") >= kScore;
}

std::optional<Hypothesis> judge(const Reading& reading) {
  const bool calm = reading.harm().kind == Harm::Kind::none;
  const Learning learning = reading.learning();
  if (calm && learning == Learning::unknown) return std::nullopt;
  if (reading.harm().kind == Harm::Kind::fault && !reading.harm().grew) return std::nullopt;
  for (const Fact& fact : reading.run().facts) {
    if (fact.kind != FactKind::attention || !collapsed(fact)) continue;
    if (calm && learning == Learning::improves && reading.remaining() < kLearnt) continue;
    Hypothesis result;
    if (!calm) result = reading.about_growth("attention_collapse", kLikely);
    result.cause = "attention_collapse";
    result.confidence = from_start(fact) || (calm && !thrown_about(reading)) ? kLikely : kPerhaps;
    result.phase = "forward";
    result.module = fact.module;
    result.op = fact.op;
    if (calm) result.step = fact.first_step;
    result.onset_step = fact.first_step;
    const std::string text = "scores up to " + brief(Reading::number(fact, "logit_max")) + ", entropy " +
                             brief(Reading::number(fact, "entropy")) + " of at most " +
                             brief(std::log(Reading::number(fact, "keys")));
    result.description = "Attention in '" + fact.module + "' has collapsed onto single keys: " + text +
                         ". Its softmax passes next to no gradient.";
    result.evidence.push_back({fact.last_step, fact.module, text});
    result.advice = "normalise queries and keys (QK-norm), cap the scores, or lower the learning rate.";
    return result;
  }
  return std::nullopt;
}

std::string condition() {
  return "an attention entropy of " + brief(kEntropy) + " ln(keys) or less with scores of " + brief(kScore) +
         " or more, in " + std::to_string(kSteps) + " steps or more, and the loss diverges or does not improve";
}

}  // namespace

namespace list {
extern const Rule attention_collapse;
const Rule attention_collapse{.name = "attention_collapse",
                              .symptom = "a transformer's loss stops or diverges; attention is one-hot",
                              .condition = condition,
                              .evidence = "Largest score and entropy of each attention softmax.",
                              .advice = "QK-norm, a cap on the scores, a lower learning rate.",
                              .source =
                                  "Zhai et al. 2023 (entropy collapse); Dehghani et al. 2023 (scores grow before the "
                                  "divergence)",
                              .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
