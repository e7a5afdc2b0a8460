// Data that the loss or an op cannot take: a target longer than its input, a feature that never varies.
#include "firstfault/reason/mechanisms/reading.h"
#include "firstfault/reason/rules/observed.h"
#include "firstfault/reason/rules/rule.h"

namespace firstfault::reason {
namespace {

constexpr double kConstantFeature = 0.85;
constexpr double kFact = 0.8;

/// A division by a stored statistic that is 0: the feature it was taken from never varied.
std::optional<Hypothesis> constant_feature(const Reading& reading) {
  const Origin* origin = reading.culprit();
  if (origin == nullptr || origin->mechanism != "division_by_zero") return std::nullopt;
  const Operand* below = find(origin->evidence, "other");
  if (below == nullptr || !below->source.starts_with("buffer")) return std::nullopt;
  Hypothesis result = reading.about_culprit(*origin, kConstantFeature);
  result.cause = "data_invalid";
  result.description += " The divisor is a stored statistic: the data it was taken from never varied there.";
  result.advice = "replace a standard deviation of 0 by 1, or drop the feature that never varies.";
  return result;
}

std::optional<Hypothesis> from_fact(const Reading& reading) {
  const Fact* fact = reading.fact(FactKind::data_invalid);
  if (fact == nullptr || reading.harm().kind != Harm::Kind::fault || fact->first_step > reading.harm().step)
    return std::nullopt;
  Hypothesis result;
  result.cause = "data_invalid";
  result.confidence = kFact;
  result.step = reading.harm().step;
  result.onset_step = fact->first_step;
  result.phase = "data";
  result.op = fact->op;
  result.module = fact->module;
  result.file = fact->file;
  result.line = fact->line;
  result.description = "The op was given values it cannot take: " + fact->detail + ".";
  result.evidence.push_back({fact->first_step, fact->module, fact->detail});
  return result;
}

std::optional<Hypothesis> judge(const Reading& reading) {
  if (auto known = observed(reading, "data_invalid")) return known;
  if (auto known = constant_feature(reading)) return known;
  return from_fact(reading);
}

std::string condition() {
  return "ctc_loss with a target that cannot be aligned (mechanism infeasible_ctc); a division by a buffer that is 0, "
         "as the standard deviation of a constant feature is; values that the op cannot take";
}

}  // namespace

namespace list {
extern const Rule data_invalid;
const Rule data_invalid{
    .name = "data_invalid",
    .symptom = "Inf or NaN loss for some batches, or from the first step",
    .condition = condition,
    .evidence = "The operands of the op: lengths, or the divisor and where it is kept.",
    .advice = "Filter such samples (zero_infinity for CTC); replace a standard deviation of 0 by 1.",
    .source = "no threshold",
    .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
