// The gradient grows from layer to layer, or from time step to time step, on its way back; the parameters had been
// calm.
#include <algorithm>
#include <cmath>

#include "firstfault/reason/mechanisms/reading.h"
#include "firstfault/reason/rules/in_time.h"
#include "firstfault/reason/rules/rule.h"

namespace firstfault::reason {
namespace {

constexpr double kLambda = 1.5;  ///< factor per layer
constexpr std::size_t kLayers = 3;
constexpr double kTotal = 70;  ///< first layer's gradient norm over the last one's
constexpr double kSmooth = 0.7;
constexpr double kCalm = 0.05;  ///< update ratio before
constexpr double kOverflowed = 0.8;
constexpr double kGrown = 0.91;
constexpr double kInTime = 0.85;
constexpr std::size_t kSteps = 5;

bool explodes(const Growth& growth) {
  return growth.layers >= kLayers && growth.lambda >= kLambda && growth.total >= kTotal && growth.smooth >= kSmooth;
}

std::string in_words(const Growth& growth) {
  return "the gradient grows by a factor of " + brief(growth.lambda) + " per layer on its way back: over " +
         std::to_string(growth.layers - 1) + " layers that is " + brief(growth.total);
}

/// A backward op went beyond the dtype in a step whose loss and parameters were ordinary.
std::optional<Hypothesis> overflowed(const Reading& reading) {
  const Origin* origin = reading.culprit();
  if (origin == nullptr || origin->phase != Phase::backward || origin->evidence.dtype == "float16") return std::nullopt;
  if (!one_of(origin->mechanism, {"dtype_overflow", "reduction_overflow"})) return std::nullopt;
  const Growth growth = reading.growth_by_depth(reading.depths(reading.harm().step, reading.harm().step + 1));
  Hypothesis result = reading.about_culprit(*origin, kOverflowed);
  result.cause = "exploding_gradient";
  result.standing = Standing::inferred;
  result.description = "The gradient went beyond the dtype on its way back, while loss and parameters were ordinary" +
                       (explodes(growth) ? "; " + in_words(growth) : std::string()) + ". " + result.description;
  return result;
}

/// Only of a run that grew from calm updates: weights that ran away make the gradient grow in time as well.
std::optional<Hypothesis> in_time(const Reading& reading) {
  const auto growth = grows_in_time(reading.run());
  if (!growth) return std::nullopt;
  Hypothesis result = reading.about_growth("exploding_gradient", kInTime);
  result.phase = "backward";
  result.module = growth->fact->module;
  result.param = growth->fact->detail;
  result.op = backward_name(growth->fact->op);
  result.forward_op = growth->fact->op;
  result.description = "Before loss and parameters left their level, " + growth->in_words() + ", to " +
                       brief(growth->total()) + " times.";
  return result;
}

/// The gradients ran away before the parameters did.
std::optional<Hypothesis> grown(const Reading& reading) {
  const Harm& harm = reading.harm();
  if (!harm.grew) return std::nullopt;
  const Series update = before(reading.series(&StepRow::update_ratio), harm.onset, 20);
  if (update.size() < 3 || median(values_of(update)) > kCalm) return std::nullopt;
  const Growth growth = reading.growth_by_depth(reading.depths(harm.onset, harm.onset + 3));
  if (!explodes(growth)) return in_time(reading);
  Hypothesis result = reading.about_growth("exploding_gradient", kGrown);
  result.phase = "backward";
  result.description = "Before loss and parameters left their level, " + in_words(growth) + ".";
  return result;
}

/// Clipping computed an Inf norm of finite gradients and multiplied them all by 0.
std::optional<Hypothesis> clipped_to_zero(const Reading& reading) {
  const Series norm = reading.series(&StepRow::gradient_norm);
  if (reading.harm().kind == Harm::Kind::fault || norm.size() < kSteps || median(values_of(norm)) != 0)
    return std::nullopt;
  for (const Origin& origin : reading.run().origins) {
    if (origin.phase == Phase::forward && origin.op.find("norm") == std::string::npos) continue;
    if (origin.op.find("norm") == std::string::npos && origin.inner_op.find("vector_norm") == std::string::npos)
      continue;
    Hypothesis result;
    result.cause = "exploding_gradient";
    result.confidence = kGrown;
    result.step = norm.front().step;
    result.onset_step = result.step;
    result.phase = "backward";
    result.evidence.push_back({origin.step, "", "the norm of finite gradients overflowed in " + origin.op});
    result.description =
        "The gradients are so large that their norm is Inf, and clipping by it multiplied all of them "
        "by 0: nothing is learnt.";
    const auto weights = reading.sites(SiteRole::gradient);
    if (!weights.empty()) {
      result.module = reading.site(weights.front()).module;
      result.param = reading.site(weights.front()).name;
    }
    return result;
  }
  return std::nullopt;
}

std::optional<Hypothesis> judge(const Reading& reading) {
  auto result = overflowed(reading);
  if (!result) result = grown(reading);
  if (!result) result = clipped_to_zero(reading);
  if (result)
    result->advice = "clip the gradient norm, use normalisation or residual connections, or smaller initial weights.";
  return result;
}

std::string condition() {
  return "a backward op overflowed while loss and parameters were ordinary; or gradients grew, with update ratios "
         "below " +
         brief(kCalm) + " until then, by a factor of " + brief(kLambda) + " per layer or more over " +
         std::to_string(kLayers) + " layers or more, to " + brief(kTotal) + " times, or over the time steps of a " +
         "recurrent layer to " + brief(kGrowsInTimeTo) + " times";
}

}  // namespace

namespace list {
extern const Rule exploding_gradient;
const Rule exploding_gradient{
    .name = "exploding_gradient",
    .symptom = "gradient norms jump by orders of magnitude while the loss still looks ordinary",
    .condition = condition,
    .evidence =
        "Gradient norms of the weights from the last layer to the first; the gradient of what goes into a recurrent "
        "layer's nonlinearity, from the last time step to the first; updates before the jump.",
    .advice =
        "Clip the gradient norm; normalisation, residual connections, smaller weights; in time orthogonal recurrent "
        "weights.",
    .source = "AutoTrainer: first layer over last above 70; Pascanu et al. 2013",
    .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
