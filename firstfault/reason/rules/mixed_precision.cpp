// float16: a value that float32 would hold overflows, or gradients round to 0, or the loss scale cannot settle.
#include <algorithm>
#include <cmath>

#include "firstfault/reason/mechanisms/reading.h"
#include "firstfault/reason/rules/observed.h"
#include "firstfault/reason/rules/rule.h"

namespace firstfault::reason {
namespace {

constexpr double kUnderflowZeros = 0.8;  ///< fraction of a float16 gradient that is exactly 0
constexpr double kNearlyAll = 0.95;      ///< then even where the loss improves somewhat, by what is left
constexpr double kLearnt = 0.5;          ///< last loss over first
constexpr double kUnderflow = 0.9;
constexpr double kZeros = 0.8;
constexpr double kStored = 0.7;
constexpr double kSwallowed = 0.85;
constexpr double kNarrowOverflow = 0.75;
constexpr std::size_t kSteps = 5;

/// An overflow in float16 whose operands do not tell whether float32 would hold it, as nearly all of them do.
std::optional<Hypothesis> narrow_overflow(const Reading& reading) {
  const Origin* origin = reading.culprit();
  if (origin == nullptr || origin->evidence.dtype != "float16") return std::nullopt;
  if (!one_of(origin->mechanism, {"dtype_overflow", "reduction_overflow", "exp_overflow"})) return std::nullopt;
  Hypothesis result = reading.about_culprit(*origin, kNarrowOverflow);
  result.cause = "mixed_precision";
  result.advice = "run this op in bfloat16 or float32, or lower the loss scale.";
  return result;
}

/// A +Inf that no op was seen to make, in a run that uses float16: masks are -Inf, and a number beyond 65504 that is
/// stored in float16 becomes +Inf.
std::optional<Hypothesis> stored_in_half(const Reading& reading) {
  const Origin* origin = reading.culprit();
  const Fact* fact = reading.fact(FactKind::low_precision);
  if (origin == nullptr || !origin->cause.empty() || fact == nullptr || fact->detail != "float16") return std::nullopt;
  const auto& operands = origin->evidence.operands;
  const bool stored = std::any_of(operands.begin(), operands.end(), [](const Operand& one) {
    return !one.is_scalar_argument && one.state == OperandState::intended_inf && one.counts.pos_inf > 0;
  });
  if (!stored) return std::nullopt;
  Hypothesis result = reading.about_culprit(*origin, kStored);
  result.cause = "mixed_precision";
  result.description = "A +Inf that no op made reached " + origin->op +
                       " in a run that uses float16: a number beyond 65504 was stored in float16.";
  result.advice = "keep such numbers in float32, or scale them down first.";
  return result;
}

/// float16 went beyond its range, and arithmetic made the Inf finite again: those samples are silently wrong.
std::optional<Hypothesis> swallowed(const Reading& reading) {
  if (reading.harm().kind != Harm::Kind::none) return std::nullopt;
  for (const Origin& origin : reading.run().origins) {
    if (origin.outcome != Outcome::swallowed || origin.cause != "mixed_precision" || origin.phase != Phase::forward)
      continue;
    Hypothesis result = reading.about_culprit(origin, kSwallowed);
    result.step = origin.step;
    result.description += " Arithmetic after it made the value finite again, so the loss shows nothing.";
    return result;
  }
  return std::nullopt;
}

/// Half or more of each parameter's gradients are exact zeros, in a run that uses float16.
double usual_zeros(const Reading& reading) {
  std::vector<double> shares;
  for (const std::int32_t site : reading.sites(SiteRole::gradient)) {
    const Series zeros = reading.series(site, &Health::zeros);
    if (zeros.size() >= kSteps) shares.push_back(median(values_of(zeros)));
  }
  return shares.empty() ? 0 : median(std::move(shares));
}

/// The same, where the gradients were already cast to float32 when they were looked at.
std::optional<Hypothesis> zero_gradients(const Reading& reading) {
  const Fact* fact = reading.fact(FactKind::low_precision);
  if (fact == nullptr || fact->detail != "float16" || reading.harm().kind != Harm::Kind::none) return std::nullopt;
  const double zeros = usual_zeros(reading);
  if (zeros < kUnderflowZeros || reading.learning() == Learning::improves) return std::nullopt;
  Hypothesis result;
  result.cause = "mixed_precision";
  result.confidence = kZeros;
  result.step = reading.rows().front()->step;
  result.onset_step = result.step;
  result.phase = "backward";
  result.module = fact->module;
  const std::string text = brief(100 * zeros) + " % of the gradients are exactly 0 in a run that uses float16";
  result.description = text + ": values below 6e-8 round to 0 there, and the loss does not improve.";
  result.evidence.push_back({result.step, "", text});
  result.advice = "scale the loss (torch.amp.GradScaler), or use bfloat16.";
  return result;
}

std::optional<Hypothesis> underflow(const Reading& reading) {
  const Fact* fact = reading.fact(FactKind::underflow);
  if (fact == nullptr || reading.harm().kind != Harm::Kind::none || fact->count < static_cast<std::int64_t>(kSteps))
    return std::nullopt;
  const double zeros = Reading::number(*fact, "zeros");
  const bool learns = reading.learning() == Learning::improves;
  if (!(zeros >= kUnderflowZeros) || (learns && (zeros < kNearlyAll || reading.remaining() < kLearnt)))
    return std::nullopt;
  Hypothesis result;
  result.cause = "mixed_precision";
  result.confidence = kUnderflow;
  result.step = fact->first_step;
  result.onset_step = fact->first_step;
  result.phase = "backward";
  result.module = fact->module;
  const double scale = Reading::number(*fact, "scale");
  result.description = brief(100 * zeros) +
                       " % of the float16 gradients are exactly 0: they are below 6e-8, the "
                       "smallest number that float16 holds, and the layers behind them do not learn. " +
                       (std::isfinite(scale) ? "The loss scale, " + brief(scale) + ", is too small."
                                             : std::string("The loss is not scaled."));
  result.evidence.push_back({fact->first_step, fact->module,
                             brief(100 * zeros) + " % exact zeros in " + std::to_string(fact->count) + " steps"});
  result.advice = "scale the loss (torch.amp.GradScaler), or use bfloat16.";
  return result;
}

std::optional<Hypothesis> judge(const Reading& reading) {
  if (auto known = observed(reading, "mixed_precision")) return known;
  if (auto known = narrow_overflow(reading)) return known;
  if (auto known = stored_in_half(reading)) return known;
  if (auto known = swallowed(reading)) return known;
  if (auto known = underflow(reading)) return known;
  return zero_gradients(reading);
}

std::string condition() {
  return "a float16 overflow of operands whose result float32 holds (mechanism dtype_overflow); or " +
         brief(100 * kUnderflowZeros) + " % of float16 gradients exactly 0 while the loss does not improve";
}

}  // namespace

namespace list {
extern const Rule mixed_precision;
const Rule mixed_precision{.name = "mixed_precision",
                           .symptom =
                               "Inf in float16 where float32 trains; a loss that does not move; skipped steps "
                               "without end",
                           .condition = condition,
                           .evidence =
                               "Operand values and ranges at the op; exact zeros in float16 gradients; the loss "
                               "scale.",
                           .advice = "bfloat16, float32 for the op, or a GradScaler.",
                           .source = "IEEE 754 binary16: 65504 and 6e-8; Micikevicius et al. 2018",
                           .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
