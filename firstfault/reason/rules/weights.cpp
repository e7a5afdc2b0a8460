// The weights as the first step shows them.
#include "firstfault/reason/rules/weights.h"

#include <algorithm>
#include <cmath>

namespace firstfault::reason {
namespace {

/// The step changed each element by `update` times the rms before it; the change points nowhere in particular.
double before_step(const Health& after) {
  const double update = known(after.update) ? after.update : 0;
  return after.rms / std::sqrt(1 + update * update);
}

bool is_weight(const Reading& reading, const Site& site) {
  const std::size_t dot = site.name.rfind('.');
  const std::string last = dot == std::string::npos ? site.name : site.name.substr(dot + 1);
  return site.shape.size() >= 2 && last.find("weight") != std::string::npos &&
         reading.module_type(site.module).find("Embedding") == std::string_view::npos;
}

}  // namespace

std::vector<Weight> initial_weights(const Reading& reading) {
  std::vector<Weight> weights;
  if (reading.run().rows.empty() || reading.run().rows.front().step != 0) return weights;
  for (const std::int32_t index : reading.sites(SiteRole::parameter)) {
    const Site& site = reading.site(index);
    const Health* health = reading.health(0, index);
    if (!is_weight(reading, site) || health == nullptr || !known(health->rms)) continue;
    const bool from_zero = !known(health->update) && health->rms != 0;  // nothing to measure the step against
    if (health->bad() || from_zero) continue;
    const double rms = before_step(*health);
    std::int64_t fan_in = 1;
    for (std::size_t i = 1; i < site.shape.size(); ++i) fan_in *= site.shape[i];
    weights.push_back({index, fan_in, rms, rms * std::sqrt(static_cast<double>(fan_in))});
  }
  std::stable_sort(weights.begin(), weights.end(), [&](const Weight& a, const Weight& b) {
    return reading.site(a.site).order < reading.site(b.site).order;
  });
  return weights;
}

std::optional<Weight> largest_gain(const Reading& reading) {
  const auto weights = initial_weights(reading);
  const auto most = std::max_element(weights.begin(), weights.end(),
                                     [](const Weight& a, const Weight& b) { return a.gain < b.gain; });
  return most == weights.end() ? std::nullopt : std::optional(*most);
}

double usual_gain(const Reading& reading) {
  std::vector<double> gains;
  for (const Weight& weight : initial_weights(reading)) gains.push_back(weight.gain);
  return median(std::move(gains));
}

bool stays_zero(const Reading& reading, const Weight& weight) {
  const Series rms = reading.series(weight.site, &Health::rms);
  constexpr std::size_t kSteps = 5;
  return rms.size() >= kSteps &&
         std::all_of(rms.begin(), rms.end(), [](const Point& point) { return point.value == 0; });
}

}  // namespace firstfault::reason
