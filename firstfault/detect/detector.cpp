// Gives each site its numbers and what it must know of the rest of the step.
#include "firstfault/detect/detector.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "firstfault/base/error.h"
#include "firstfault/base/numbers.h"
#include "firstfault/detect/site_watch.h"
#include "firstfault/detect/thresholds.h"

namespace firstfault {
namespace {

using detect::Window;

constexpr std::size_t kLevelPlaces = 8;

/// Has the loss come down? Medians of its first and its newest values.
class LossCourse {
 public:
  void add(double loss) {
    if (!std::isfinite(loss)) return;
    newest_.add(static_cast<float>(loss));
    if (first_.size() < kLevelPlaces) first_.add(static_cast<float>(loss));
  }
  bool improved() const {
    if (first_.size() < kLevelPlaces) return false;
    return newest_.median() < first_.median() - detect::kImproved * std::fabs(first_.median());
  }

 private:
  Window first_{kLevelPlaces};
  Window newest_{kLevelPlaces};
};

void check(const char* name, double threshold) {
  if (std::isfinite(threshold) && threshold > 0) return;
  throw Error(std::string("Detector: ") + name + " must be a number above 0, not " + show_number(threshold) + ".",
              Error::Kind::bad_value);
}

DetectorOptions checked(DetectorOptions options) {
  check("threshold_vanishing", options.threshold_vanishing);
  check("threshold_exploding", options.threshold_exploding);
  if (options.threshold_vanishing < options.threshold_exploding) return options;
  throw Error("Detector: threshold_vanishing (" + show_number(options.threshold_vanishing) +
                  ") must be below threshold_exploding (" + show_number(options.threshold_exploding) + ").",
              Error::Kind::bad_value);
}

bool has_parameter(const Site& site) { return site.role == SiteRole::gradient || site.role == SiteRole::parameter; }

/// The loss as the row has it, for a loss site that has no Health of its own in this step.
Health health_of_loss(const StepRow& row) {
  Health health;
  if (row.loss_state == StepRow::Loss::unknown) return health;
  health.nonfinite = row.bad_loss() ? 1 : 0;
  if (!row.bad_loss()) health.rms = static_cast<float>(row.loss);
  return health;
}

}  // namespace

struct Detector::Impl {
  detect::StepContext context;
  LossCourse course;
  std::vector<detect::SiteWatch> watches;
  bool loss_alone = false;  // there is one loss site, at loss_site
  std::size_t loss_site = 0;

  void meet(const std::vector<Site>& sites);
  void look_around(const std::vector<Site>& sites, const StepRow& row);
  Health health(const StepRow& row, std::size_t site) const;
};

/// Sites that are new since the last step.
void Detector::Impl::meet(const std::vector<Site>& sites) {
  for (std::size_t i = watches.size(); i < sites.size(); ++i) {
    watches.emplace_back(sites[i]);
    if (has_parameter(sites[i])) context.last_layer = std::max(context.last_layer, sites[i].order);
    if (sites[i].role != SiteRole::loss) continue;
    const bool first = std::none_of(sites.begin(), sites.begin() + static_cast<std::ptrdiff_t>(i),
                                    [](const Site& site) { return site.role == SiteRole::loss; });
    loss_alone = first;
    loss_site = i;
  }
}

void Detector::Impl::look_around(const std::vector<Site>& sites, const StepRow& row) {
  double squares = 0;
  context.harm = row.bad_loss();
  for (std::size_t i = 0; i < std::min(sites.size(), row.sites.size()); ++i) {
    const Health& one = row.sites[i];
    const bool counts = sites[i].role == SiteRole::loss || (has_parameter(sites[i]) && !row.skipped);
    context.harm = context.harm || (counts && one.bad());
    if (sites[i].role != SiteRole::gradient || !one.seen() || one.bad() || !known(one.rms)) continue;
    squares += double{one.rms} * one.rms * static_cast<double>(sites[i].elements());
  }
  context.gradient_norm = std::sqrt(squares);
  course.add(row.loss);
  context.improved = course.improved();
}

Health Detector::Impl::health(const StepRow& row, std::size_t site) const {
  const Health own = site < row.sites.size() ? row.sites[site] : Health{};
  return !own.seen() && loss_alone && site == loss_site ? health_of_loss(row) : own;
}

Detector::Detector(DetectorOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->context.options = checked(options);
}
Detector::~Detector() = default;
Detector::Detector(Detector&&) noexcept = default;
Detector& Detector::operator=(Detector&&) noexcept = default;

std::vector<Transition> Detector::observe(const std::vector<Site>& sites, const StepRow& row) {
  std::vector<Transition> transitions;
  impl_->meet(sites);
  impl_->look_around(sites, row);
  for (std::size_t i = 0; i < sites.size(); ++i) {
    if (row.skipped && has_parameter(sites[i])) continue;
    const Health health = impl_->health(row, i);
    if (!health.seen()) continue;
    const auto change = impl_->watches[i].observe(health, impl_->context);
    if (!change) continue;
    transitions.push_back({row.step, static_cast<std::int32_t>(i), change->from, change->to, change->value,
                           change->baseline, change->confidence});
  }
  return transitions;
}

Condition Detector::state(std::size_t site) const noexcept {
  return site < impl_->watches.size() ? impl_->watches[site].state() : Condition::healthy;
}

}  // namespace firstfault
