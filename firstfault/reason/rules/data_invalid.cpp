// Data that the loss or an op cannot take: a target longer than its input, a feature that never varies.
#include <algorithm>
#include <cmath>
#include <limits>

#include "firstfault/reason/rules/batch.h"
#include "firstfault/reason/rules/observed.h"
#include "firstfault/reason/rules/rule.h"

namespace firstfault::reason {
namespace {

constexpr double kConstantFeature = 0.91;
constexpr double kFact = 0.85;
constexpr double kConstant = 1e-3;  ///< std over rms of a tensor of the batch; float32 sums resolve 1e-4
constexpr double kVaries = 0.05;
constexpr double kNaNSpread = std::numeric_limits<double>::quiet_NaN();

/// A division by a stored statistic that is 0: the feature it was taken from never varied.
std::optional<Hypothesis> constant_feature(const Reading& reading) {
  const Origin* origin = reading.culprit();
  if (origin == nullptr || divisor(*origin) != Divisor::statistic) return std::nullopt;
  Hypothesis result = reading.about_culprit(*origin, kConstantFeature);
  result.cause = "data_invalid";
  result.description += " The divisor is a stored statistic: the data it was taken from never varied there.";
  result.advice = "replace a standard deviation of 0 by 1, or drop the feature that never varies.";
  return result;
}

/// Standard deviation over rms; 0 where all elements are the same.
double spread(const Health& health) {
  if (!known(health.mean) || !(health.rms > 0)) return kNaNSpread;
  const double share = static_cast<double>(health.mean) / health.rms;
  return std::sqrt(std::max(0.0, 1 - share * share));
}

/// A tensor that varies in every other batch, and has one value only in the step of a fault or a spike.
std::optional<std::int32_t> constant_tensor(const Reading& reading, std::int64_t step) {
  for (const SiteRole role : {SiteRole::input, SiteRole::target}) {
    for (const std::int32_t site : reading.sites(role)) {
      const Health* health = reading.health(step, site);
      if (health == nullptr || reading.site(site).elements() < 2 || !(spread(*health) < kConstant)) continue;
      std::size_t varied = 0;
      for (const StepRow* row : reading.rows()) {
        const Health* other = reading.health(row->step, site);
        if (row->step < step && other != nullptr && spread(*other) > kVaries) ++varied;
      }
      if (varied >= kOutlierHistory) return site;
    }
  }
  return std::nullopt;
}

std::optional<Hypothesis> constant_batch(const Reading& reading) {
  if (reading.harm().kind != Harm::Kind::none) return std::nullopt;
  for (const StepRow* row : reading.rows()) {
    if (!spike_at(reading, row->step)) continue;
    const auto site = constant_tensor(reading, row->step);
    if (!site) continue;
    Hypothesis result;
    result.cause = "data_invalid";
    result.confidence = kFact;
    result.step = row->step;
    result.onset_step = row->step;
    result.phase = "data";
    const std::string name = name_of_site(reading.site(*site));
    result.description = "In step " + std::to_string(row->step) + " all elements of " + name +
                         " are the same, and loss or gradients spiked: what divides by its spread divides by 0.";
    result.evidence.push_back({row->step, name, name + " does not vary in this batch"});
    result.advice = "clamp the spread that is divided by from below, or skip such batches.";
    return result;
  }
  return std::nullopt;
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
  if (auto known = constant_batch(reading)) return known;
  return from_fact(reading);
}

std::string condition() {
  return "ctc_loss with a target that cannot be aligned (mechanism infeasible_ctc); a division by a buffer that is 0, "
         "as the standard deviation of a constant feature is; a batch whose input or "
         "target has one value only while loss or gradients spike; values that the op cannot take";
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
