// Is the batch of one step unlike the batches before it?
#include "firstfault/reason/rules/batch.h"

#include <algorithm>
#include <cmath>

namespace firstfault::reason {
namespace {

std::optional<Outlier> stands_out(const Series& series, std::int64_t step) {
  const auto value = at(series, step);
  const Level usual = level(before(series, step, kOutlierWindow));
  if (!value || usual.count < kAbsurdHistory) return std::nullopt;
  const Excess over = excess(usual, *value);
  const double least = usual.count < kOutlierHistory ? kAbsurdTimes : kOutlierTimes;
  if (over.z <= kOutlierZ || over.decades < std::log10(least)) return std::nullopt;
  return Outlier{-1, std::fabs(*value), std::pow(10, usual.middle), over.z};
}

/// Above everything in the window, or by a robust z: the losses of a run that has converged spread over decades.
bool beyond(const Series& window, double value) {
  const Level usual = level(window);
  if (usual.count < kShortHistory) return false;
  const double largest = quantile(values_of(window), 1);
  if (usual.count < kOutlierHistory) return std::fabs(value) > kFarAbove * largest;
  return excess(usual, value).z > kOutlierZ || std::fabs(value) > kAboveMost * largest;
}

double times_at(const Series& series, std::int64_t step) {
  const auto value = at(series, step);
  const Series window = before(series, step, kOutlierWindow);
  return value && beyond(window, *value) ? std::pow(10, excess(level(window), *value).decades) : 1;
}

}  // namespace

std::optional<Outlier> batch_outlier(const Reading& reading, SiteRole role, std::int64_t step) {
  std::optional<Outlier> worst;
  for (const std::int32_t site : reading.sites(role)) {
    for (const Reading::Measure measure : {&Health::absmax, &Health::rms}) {
      auto found = stands_out(reading.series(site, measure), step);
      if (!found || (worst && found->times() <= worst->times())) continue;
      found->site = site;
      worst = found;
    }
  }
  return worst;
}

Evidence outlier_evidence(const Reading& reading, const Outlier& outlier, std::int64_t step) {
  const std::string name = name_of_site(reading.site(outlier.site));
  return {step, name,
          name + " was at " + brief(outlier.value) + ", " + brief(outlier.times()) + " times the " +
              brief(outlier.usual) + " of the steps before (robust z " + brief(outlier.z) + ")"};
}

std::optional<Spike> spike_at(const Reading& reading, std::int64_t step) {
  Spike spike{step, times_at(reading.series(&StepRow::loss), step),
              times_at(reading.series(&StepRow::gradient_norm), step)};
  if (spike.loss_times < 10 && spike.gradient_times < 10) return std::nullopt;
  return spike;
}

bool thrown_back(const Reading& reading, std::int64_t step) {
  const Series loss = reading.series(&StepRow::loss);
  const Series window = before(loss, step, kOutlierWindow);
  const Series after = between(loss, step + 1, step + 1 + kAfter);
  if (window.empty() || static_cast<std::int64_t>(after.size()) < kAfter) return false;
  const double late = median(values_of(after));
  return excess(level(window), late).decades >= std::log10(kAfterTimes) && late > quantile(values_of(window), 0.95);
}

}  // namespace firstfault::reason
