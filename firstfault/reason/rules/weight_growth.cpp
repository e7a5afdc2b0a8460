// The parameters grow by a constant factor per step, and the gradients do not ask for it.
#include <algorithm>
#include <cmath>

#include "firstfault/reason/rules/rule.h"

namespace firstfault::reason {
namespace {

constexpr std::size_t kSteps = 8;
constexpr double kTotal = 3;      ///< last parameter norm over the first of the window
constexpr double kSteady = 0.25;  ///< spread of the growth per step over its middle
constexpr double kShare = 0.5;    ///< of the norm's growth: the largest that the optimizer's step may be
constexpr double kBegun = 0.3;    ///< growth of a step over the middle one: below it, it had not begun
constexpr double kPerStep = 2;    ///< growth by more in each step is a divergence: lr_too_high and its kin
constexpr double kMatch = 0.03;   ///< lr * gradient norm over the step's size: SGD would need 1
constexpr double kLikely = 0.94;

struct Steady {
  double per_step = 0;
  std::int64_t first = 0;
  double from = 0, to = 0;
};

std::optional<Steady> geometric(const Series& norm) {
  if (norm.size() < kSteps + 1 || norm.front().value <= 0) return std::nullopt;
  std::vector<double> rates;
  for (std::size_t i = 1; i < norm.size(); ++i) {
    const auto steps = static_cast<double>(norm[i].step - norm[i - 1].step);
    rates.push_back(std::log(norm[i].value / norm[i - 1].value) / steps);
  }
  const double middle = median(rates);
  for (double& rate : rates) rate = std::fabs(rate - middle);
  if (!(middle > 0) || middle > std::log(kPerStep) || median(rates) > kSteady * middle) return std::nullopt;
  if (norm.back().value < kTotal * norm.front().value) return std::nullopt;
  std::size_t begin = norm.size() - 1;  // where the growth began, walking back from the end
  while (begin > 0 && norm[begin].value > norm[begin - 1].value * std::exp(kBegun * middle)) --begin;
  return Steady{std::exp(middle), norm[begin].step, norm[begin].value, norm.back().value};
}

/// The norm grows by more than the optimizer's whole step, or that step is far larger than the gradient accounts for.
bool without_gradient(const std::vector<const StepRow*>& rows, double per_step) {
  std::size_t unmatched = 0;
  for (const StepRow* row : rows) {
    const double asked = row->lr * row->gradient_norm;
    const double taken = row->update_ratio * row->parameter_norm;
    const bool beyond = row->update_ratio < kShare * std::log(per_step);
    if (std::isfinite(asked) && std::isfinite(taken) && (beyond || asked < kMatch * taken)) ++unmatched;
  }
  return unmatched * 2 > rows.size();
}

/// The longest stretch up to the harm or the end that grows steadily, by halves: it may begin in the middle of a run.
std::optional<Steady> newest_growth(const Series& norm, std::vector<const StepRow*>& rows) {
  for (std::size_t skip = 0; skip + kSteps < norm.size(); skip += std::max<std::size_t>(1, (norm.size() - skip) / 4)) {
    const Series part(norm.begin() + static_cast<std::ptrdiff_t>(skip), norm.end());
    auto steady = geometric(part);
    if (!steady) continue;
    std::erase_if(rows, [&](const StepRow* row) { return row->step < steady->first; });
    return steady;
  }
  return std::nullopt;
}

std::optional<Hypothesis> judge(const Reading& reading) {
  const Series norm = reading.harm().kind == Harm::Kind::fault ? reading.healthy(&StepRow::parameter_norm)
                                                               : reading.series(&StepRow::parameter_norm);
  auto rows = reading.harm().kind == Harm::Kind::fault ? reading.healthy_rows() : reading.rows();
  const auto steady = newest_growth(norm, rows);
  if (!steady || !without_gradient(rows, steady->per_step)) return std::nullopt;
  Hypothesis result;
  const bool harmed = reading.harm().grew;
  if (harmed) result = reading.about_growth("weight_growth", kLikely);
  result.cause = "weight_growth";
  result.confidence = kLikely;
  result.phase = "optimizer";
  if (!harmed) result.step = norm.back().step;
  result.onset_step = steady->first;
  const std::string text = "the parameter norm grew from " + brief(steady->from) + " to " + brief(steady->to) +
                           ", by " + brief(100 * (steady->per_step - 1)) + " % in each step";
  result.description = "The parameters feed themselves: " + text + ", while the gradients account for less than " +
                       brief(100 * kMatch) + " % of the steps.";
  result.evidence.insert(result.evidence.begin(), {steady->first, "", text});
  result.advice =
      "look for what multiplies the parameters: a decay with the wrong sign, an average of weights, a custom "
      "optimizer step.";
  return result;
}

std::string condition() {
  return "over " + std::to_string(kSteps) + " steps or more the parameter norm grows by a steady factor, to " +
         brief(kTotal) + " times, and lr times the gradient norm is less than " + brief(kMatch) + " of the steps' size";
}

}  // namespace

namespace list {
extern const Rule weight_growth;
const Rule weight_growth{.name = "weight_growth",
                         .symptom = "the parameter norm grows geometrically with no gradient to match",
                         .condition = condition,
                         .evidence = "Parameter norm, update ratio, gradient norm and learning rate over the steps.",
                         .advice = "Look for what multiplies the parameters.",
                         .source = "a step of SGD is lr times the gradient",
                         .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
