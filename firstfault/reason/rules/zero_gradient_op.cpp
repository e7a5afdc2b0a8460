// An op whose derivative is 0 everywhere stands between the loss and the parameters.
#include <algorithm>

#include "firstfault/reason/rules/rule.h"

namespace firstfault::reason {
namespace {

constexpr std::size_t kSteps = 5;
constexpr double kWithOp = 0.92;
constexpr double kAllZero = 0.5;  ///< every gradient 0, and no op to point at

bool always_zero(const Reading& reading, std::int32_t site) {
  const Series largest = reading.series(site, &Health::absmax);
  return largest.size() >= kSteps &&
         std::all_of(largest.begin(), largest.end(), [](const Point& point) { return point.value == 0; });
}

std::vector<std::int32_t> zero_gradients(const Reading& reading) {
  std::vector<std::int32_t> zero = reading.sites(SiteRole::gradient);
  std::erase_if(zero, [&](std::int32_t site) { return !always_zero(reading, site); });
  return zero;
}

Hypothesis about(const Reading& reading, const std::vector<std::int32_t>& zero, double confidence) {
  Hypothesis result;
  result.cause = "zero_gradient_op";
  result.confidence = confidence;
  result.step = reading.rows().front()->step;
  result.onset_step = result.step;
  result.phase = "backward";
  result.param = reading.site(zero.front()).name;
  result.evidence.push_back({result.step, name_of_site(reading.site(zero.front())),
                             std::to_string(zero.size()) + " gradients are exactly 0 in every step, the " +
                                 name_of_site(reading.site(zero.front())) + " first"});
  result.advice = "take the op out of the path of the gradient, or give it a straight-through estimator.";
  return result;
}

std::optional<Hypothesis> judge(const Reading& reading) {
  if (reading.harm().kind != Harm::Kind::none || reading.rows().empty()) return std::nullopt;
  const auto zero = zero_gradients(reading);
  if (zero.empty()) return std::nullopt;
  if (const Fact* fact = reading.fact(FactKind::constant_op)) {
    Hypothesis result = about(reading, zero, kWithOp);
    result.op = fact->op.empty() ? fact->detail : fact->op;
    result.module = fact->module;
    result.file = fact->file;
    result.line = fact->line;
    result.description = result.op + " has a derivative of 0 everywhere (" + fact->detail +
                         "), so what lies before it gets "
                         "no gradient: " +
                         result.evidence.front().text + ".";
    return result;
  }
  if (zero.size() != reading.sites(SiteRole::gradient).size() || reading.learning() == Learning::improves)
    return std::nullopt;
  Hypothesis result = about(reading, zero, kAllZero);
  result.description =
      "Every gradient is exactly 0 in every step: something between the loss and the parameters has no "
      "derivative.";
  return result;
}

std::string condition() {
  return "an op whose derivative is 0 everywhere (softmax over one element, round, sign, argmax) was seen and a "
         "parameter's gradient is exactly 0 in all of " +
         std::to_string(kSteps) + " steps or more; or, less sure, every gradient is";
}

}  // namespace

namespace list {
extern const Rule zero_gradient_op;
const Rule zero_gradient_op{.name = "zero_gradient_op",
                            .symptom = "part of the model never changes; its gradients are exactly 0",
                            .condition = condition,
                            .evidence = "Exact zeros of the gradients in every step; the op above them.",
                            .advice = "Take the op out of the gradient's path, or use a straight-through estimator.",
                            .source = "the derivative of a constant is 0",
                            .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
