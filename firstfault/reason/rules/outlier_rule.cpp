// What data_outlier and label_outlier share.
#include "firstfault/reason/rules/outlier_rule.h"

#include "firstfault/reason/mechanisms/reading.h"
#include "firstfault/reason/rules/batch.h"

namespace firstfault::reason {
namespace {

constexpr double kOverflowed = 0.96;
constexpr double kStarted = 0.93;
constexpr double kSpiked = 0.9;
constexpr double kOnlySpiked = 0.75;  ///< the next step was as if nothing had been
constexpr double kLargestHalf = 65504;
constexpr double kThrown = 0.1;  ///< update ratio of the step: the parameters were moved far
constexpr double kAbsurd = 0.9;
constexpr std::int64_t kJustBefore = 2;  ///< steps
constexpr double kFarOut = 10;           ///< times the usual, of a batch before the one with which the growth began
constexpr double kSpikeTimes = 10;       ///< loss or gradient norm over its level

/// Ops that are finite on everything ordinary: where one overflows in float32, its operands are to blame. exp, log
/// and division are fragile by themselves, and the mechanism says so.
bool robust_op(const Origin& origin) {
  return origin.evidence.dtype != "float16" &&
         one_of(origin.mechanism, {"dtype_overflow", "reduction_overflow", "inf_minus_inf", ""});
}

/// The value itself does not fit into float16: no care with the ops would have helped.
bool beyond_half(const Reading& reading, SiteRole role, std::int64_t step) {
  const auto outlier = batch_outlier(reading, role, step);
  return outlier && outlier->value > kLargestHalf && reading.culprit()->cause == "mixed_precision";
}

struct Place {
  std::int64_t step;
  double confidence;
  const char* harm;
};

/// The growth shows in the loss of the batch itself, or only in those after the step that it made.
std::int64_t start_of_growth(const Reading& reading, SiteRole role) {
  const std::int64_t onset = reading.harm().onset;
  if (batch_outlier(reading, role, onset)) return onset;
  for (std::int64_t step = onset - 1; step >= onset - kJustBefore; --step) {
    const auto outlier = batch_outlier(reading, role, step);
    if (outlier && outlier->times() >= kFarOut) return step;
  }
  return onset;
}

/// The steps in which an outlier would explain the harm.
std::optional<Place> place(const Reading& reading, SiteRole role) {
  const Harm& harm = reading.harm();
  const Origin* culprit = reading.culprit();
  if (harm.kind == Harm::Kind::fault && !harm.grew) {
    const bool known = harm.origin == nullptr ||
                       (culprit != nullptr && (robust_op(*culprit) || beyond_half(reading, role, harm.step)));
    if (known) return Place{harm.step, kOverflowed, "the values went beyond the dtype in the same step"};
    return std::nullopt;
  }
  if (harm.grew) return Place{start_of_growth(reading, role), kStarted, "loss and gradients have grown away since"};
  return std::nullopt;
}

Hypothesis build(const Reading& reading, const Outlier& outlier, const Place& place) {
  const Harm& harm = reading.harm();
  Hypothesis result;
  if (reading.culprit() != nullptr) result = reading.about_culprit(*harm.origin, place.confidence);
  result.confidence = place.confidence;
  result.standing = Standing::inferred;
  result.step = harm.kind == Harm::Kind::none ? place.step : harm.step;
  result.onset_step = place.step;
  if (result.phase.empty()) result.phase = "data";
  const Evidence found = outlier_evidence(reading, outlier, place.step);
  result.description = "The batch of step " + std::to_string(place.step) +
                       " is unlike the ones before it: " + found.text + "; " + place.harm + ".";
  result.evidence.insert(result.evidence.begin(), found);
  const Health* health = reading.health(place.step, outlier.site);
  if (health != nullptr && health->row >= 0) result.sample = health->row;
  return result;
}

/// The program looked at the loss and made no step of it: the row holds the backward passes of two batches.
bool left_out_by_program(const Reading& reading, const StepRow& row) {
  std::vector<double> usual;
  for (const StepRow* other : reading.rows()) usual.push_back(other->backwards);
  return row.backwards > median(std::move(usual));
}

/// No harm that shows, but values that no sample has: what batch statistics are kept, they are spoilt.
std::optional<Place> absurd(const Reading& reading, SiteRole role) {
  for (const StepRow* row : reading.rows()) {
    const auto outlier = batch_outlier(reading, role, row->step);
    if (outlier && outlier->times() >= kAbsurdTimes && row->step >= static_cast<std::int64_t>(kOutlierHistory))
      return Place{row->step, kAbsurd, "no ordinary sample is so large, whatever the loss of this step shows"};
  }
  return std::nullopt;
}

/// Everything finite: the step whose gradients or loss stood out most, if its batch did too.
std::optional<Place> spike(const Reading& reading, SiteRole role) {
  std::optional<Place> worst;
  double most = kSpikeTimes;
  for (const StepRow* row : reading.rows()) {
    if (!batch_outlier(reading, role, row->step)) continue;
    const auto spike = spike_at(reading, row->step);
    if (!spike || std::max(spike->loss_times, spike->gradient_times) < most) continue;
    const bool lasting = thrown_back(reading, row->step) || row->update_ratio >= kThrown;
    if (!lasting && (spike->loss_times < kSpikeTimes || left_out_by_program(reading, *row))) continue;
    most = std::max(spike->loss_times, spike->gradient_times);
    worst = Place{row->step, lasting ? kSpiked : kOnlySpiked, "loss and gradients spiked with it"};
  }
  return worst;
}

const char* advice(SiteRole role) {
  return role == SiteRole::input
             ? "look at this batch; drop, clip or mask such values in the loader, and clip the gradient norm to its "
               "usual level."
             : "look at this batch's targets; a loss that bounds a single error (Huber), or clipping, limits the harm.";
}

}  // namespace

std::optional<Hypothesis> outlier_hypothesis(const Reading& reading, SiteRole role, std::string_view cause) {
  const bool harmless = reading.harm().kind == Harm::Kind::none;
  auto where = harmless ? spike(reading, role) : place(reading, role);
  if (harmless && !where) where = absurd(reading, role);
  if (!where) return std::nullopt;
  const auto outlier = batch_outlier(reading, role, where->step);
  if (!outlier) return std::nullopt;
  Hypothesis result = build(reading, *outlier, *where);
  result.cause = cause;
  result.advice = advice(role);
  return result;
}

std::string outlier_condition(const char* what) {
  return std::string("the largest magnitude or rms of ") + what + " stands " + brief(kOutlierTimes) +
         " times and a robust z of " + brief(kOutlierZ) + " above the " + std::to_string(kOutlierWindow) +
         " batches before (or " + brief(kAbsurdTimes) + " times above at least " + std::to_string(kAbsurdHistory) +
         "), and in the same step a product or sum overflows, a divergence begins, or loss or gradient norm rises " +
         brief(kSpikeTimes) + " times and the run is thrown back by it";
}

}  // namespace firstfault::reason
