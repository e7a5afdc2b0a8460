// A router that sends nearly everything to one expert.
#include <cmath>

#include "firstfault/reason/rules/rule.h"

namespace firstfault::reason {
namespace {

constexpr double kShare = 0.85;
constexpr double kTimesFair = 2.5;  ///< the share of the commonest expert over 1/experts
constexpr std::int64_t kSteps = 20;
constexpr double kLikely = 0.85;

std::optional<Hypothesis> judge(const Reading& reading) {
  if (reading.harm().kind == Harm::Kind::fault) return std::nullopt;
  for (const Fact& fact : reading.run().facts) {
    if (fact.kind != FactKind::expert_share || fact.count < kSteps) continue;
    const double share = Reading::number(fact, "share");
    const double experts = Reading::number(fact, "experts");
    if (!(share >= kShare) || !(share * experts >= kTimesFair)) continue;
    Hypothesis result;
    result.cause = "moe_collapse";
    result.confidence = kLikely;
    result.step = fact.first_step;
    result.onset_step = fact.first_step;
    result.phase = "forward";
    result.module = fact.module;
    result.op = fact.op;
    const std::string text = brief(100 * share) + " % of the samples go to one of " + brief(experts) + " experts";
    result.description = "The router of '" + fact.module + "' has collapsed: " + text + "; the others get no gradient.";
    result.evidence.push_back({fact.last_step, fact.module, text});
    result.advice = "add a load-balancing loss, noise on the router's scores, or a capacity limit.";
    return result;
  }
  return std::nullopt;
}

std::string condition() {
  return "one expert takes " + brief(kShare) + " of the samples or more, and " + brief(kTimesFair) +
         " times its fair share, in " + std::to_string(kSteps) + " steps or more";
}

}  // namespace

namespace list {
extern const Rule moe_collapse;
const Rule moe_collapse{.name = "moe_collapse",
                        .symptom = "a mixture of experts no better than one expert",
                        .condition = condition,
                        .evidence = "Share of the commonest expert in the router's choices.",
                        .advice = "A load-balancing loss, noise on the router, a capacity limit.",
                        .source = "Shazeer et al. 2017; Fedus et al. 2022",
                        .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
