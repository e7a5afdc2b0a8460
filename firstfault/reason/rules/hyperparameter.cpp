// A number that the program sets is NaN, Inf, or 0 where something is divided by it.
#include <algorithm>
#include <cmath>

#include "firstfault/reason/rules/observed.h"
#include "firstfault/reason/rules/rule.h"

namespace firstfault::reason {
namespace {

constexpr double kZeroDivisor = 0.91;
constexpr double kNumber = 0.92;
constexpr double kRate = 0.9;
constexpr double kRateComputed = 0.96;  ///< goes before the op that computes it

/// A temperature, a scale, a count that the program passes as a Python number: it was 0.
std::optional<Hypothesis> divided_by_setting(const Reading& reading) {
  const Origin* origin = reading.culprit();
  if (origin == nullptr || divisor(*origin) != Divisor::setting) return std::nullopt;
  Hypothesis result = reading.about_culprit(*origin, kZeroDivisor);
  result.cause = "hyperparameter";
  result.description += " The divisor is a number of the program's own, not a tensor.";
  result.advice = "keep a floor under this number (an annealed temperature, a scale): max(0.1, tau).";
  return result;
}

/// A Python number in the arithmetic is a 0-dim float64 tensor that no op made: a loss weight, an annealed factor.
std::optional<Hypothesis> number_in_arithmetic(const Reading& reading) {
  const Origin* origin = reading.culprit();
  if (origin == nullptr || !python_number(*origin)) return std::nullopt;
  Hypothesis result = reading.about_culprit(*origin, kNumber);
  result.cause = "hyperparameter";
  result.phase = "forward";
  result.sample.reset();
  result.description = "A number of the program's own was " + std::string(name_of(origin->evidence.first)) + " when " +
                       origin->op + " read it, in step " + std::to_string(origin->step) + ".";
  result.advice = "find where this number is computed: a weight of the loss, an annealed factor.";
  return result;
}

/// Loss and gradients of the step were finite, as far as they are known.
bool learnt_well(const Reading& reading, std::int64_t step) {
  const StepRow* row = reading.row(step);
  if (row == nullptr || row->bad_loss()) return false;
  const auto sites = reading.sites(SiteRole::gradient);
  return std::none_of(sites.begin(), sites.end(), [&](std::int32_t site) {
    const Health* health = reading.health(step, site);
    return health != nullptr && health->bad();
  });
}

bool not_finite(const Reading& reading, std::int64_t step) {
  const auto sites = reading.sites(SiteRole::optimizer);
  return std::any_of(sites.begin(), sites.end(), [&](std::int32_t site) {
    const Health* health = reading.health(step, site);
    return health != nullptr && (std::isinf(health->lr) || health->nonfinite > 0);
  });
}

/// A tensor that an optimizer made of its learning rate: its value was there before any op.
bool held_outside(const Origin& origin) {
  return origin.mechanism == "bad_input" && origin.evidence.role == TensorRole::outside;
}

/// Without the op, or with one that computes the number only: the learning rate itself is not finite.
std::optional<Hypothesis> rate(const Reading& reading) {
  const Harm& harm = reading.harm();
  if (harm.kind != Harm::Kind::fault) return std::nullopt;
  const bool is_effect = harm.origin != nullptr && !held_outside(*harm.origin) && !learnt_well(reading, harm.step);
  if (is_effect) return std::nullopt;  // of something in the model
  if (!not_finite(reading, harm.step)) return std::nullopt;
  Hypothesis result;
  if (harm.origin != nullptr) result = reading.about_culprit(*harm.origin, kRateComputed);
  if (harm.origin == nullptr) result.confidence = kRate;
  result.cause = "hyperparameter";
  result.step = harm.step;
  result.phase = "optimizer";
  result.description = "The optimizer's learning rate was not finite in step " + std::to_string(harm.step) + ".";
  result.advice = "find where it is computed: a schedule with a warm-up of 0 steps divides by 0.";
  return result;
}

std::optional<Hypothesis> judge(const Reading& reading) {
  if (auto known = observed(reading, "hyperparameter")) return known;
  if (auto known = divided_by_setting(reading)) return known;
  if (auto known = number_in_arithmetic(reading)) return known;
  return rate(reading);
}

std::string condition() {
  return "a number in the op's call is NaN or Inf (mechanism nonfinite_hyperparameter), or a tensor is divided by a "
         "number of the program that is 0; or the learning rate was not finite while loss and gradients were";
}

}  // namespace

namespace list {
extern const Rule hyperparameter;
const Rule hyperparameter{.name = "hyperparameter",
                          .symptom = "parameters turn NaN in the optimizer step, or an annealed number reaches 0",
                          .condition = condition,
                          .evidence = "The arguments of the op's call.",
                          .advice = "Find where the number is computed; keep a floor under it.",
                          .source = "no threshold",
                          .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
