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

double times_at(const Series& series, std::int64_t step) {
  const auto value = at(series, step);
  const Level usual = level(before(series, step, kOutlierWindow));
  if (!value || usual.count < kOutlierHistory) return 1;
  const Excess over = excess(usual, *value);
  return over.z > kOutlierZ ? std::pow(10, over.decades) : 1;
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

}  // namespace firstfault::reason
