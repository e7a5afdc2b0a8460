// Which number of which role speaks for which condition.
#include "firstfault/detect/site_watch.h"

#include <algorithm>
#include <cmath>

#include "firstfault/detect/readings.h"
#include "firstfault/detect/thresholds.h"

namespace firstfault::detect {
namespace {

constexpr std::size_t kFewest = 3;       // values from which a short baseline is some help
constexpr double kLeastFraction = 0.01;  // a fraction of 0 has no logarithm

bool holds_whole_numbers(const std::string& dtype) {
  return dtype.find("int") != std::string::npos || dtype == "bool" || dtype == "long" || dtype == "short";
}

bool in_forward(SiteRole role) {
  return role == SiteRole::input || role == SiteRole::target || role == SiteRole::activation;
}

Reading fraction_reading(Condition condition, double fraction) {
  Reading reading;
  reading.condition = condition;
  reading.value = fraction;
  reading.leave_steps = kLeaveSteps;
  return reading;
}

}  // namespace

bool Readings::entering(Condition condition) const {
  return std::any_of(all().begin(), all().end(), [&](const Reading& r) { return r.condition == condition && r.enter; });
}

SiteWatch::SiteWatch(const Site& site)
    : role_(site.role),
      root_of_elements_(std::sqrt(static_cast<double>(std::max<std::int64_t>(site.elements(), 1)))),
      order_(site.order),
      matrix_(site.shape.size() >= 2),
      whole_numbers_(holds_whole_numbers(site.dtype)),
      softmax_(site.op.find("softmax") != std::string::npos),
      model_output_(site.role == SiteRole::activation && site.op.empty()),
      losses_(kLossPlaces) {}

std::optional<Change> SiteWatch::observe(const Health& health, const StepContext& step) {
  Readings readings;
  Reading bad = non_finite(health.nonfinite);
  // NaN that marks a missing label, the -Inf of a masked log_softmax: meant, as long as nothing that counts takes it
  // up.
  if (in_forward(role_)) bad.enter = bad.enter && step.harm;
  readings.add(bad);
  if (health.bad()) return machine_.update(readings.all());
  switch (role_) {
    case SiteRole::gradient: read_gradient(health, step, readings); break;
    case SiteRole::parameter: read_parameter(health, step, readings); break;
    case SiteRole::activation: read_activation(health, step, readings); break;
    case SiteRole::loss: read_loss(health, step, readings); break;
    case SiteRole::input:
    case SiteRole::target: read_batch(health, readings); break;
    case SiteRole::optimizer:
    case SiteRole::clipping: break;
  }
  const auto change = machine_.update(readings.all());
  learn_spike(role_ == SiteRole::loss ? health.rms : health.absmax, change);
  learn(health, readings);
  return change;
}

/// Exactly 0 is by design (unused rows, experts without samples, frozen parts) or what `dead` is about: no reading.
void SiteWatch::read_gradient(const Health& health, const StepContext& step, Readings& readings) const {
  if (!known(health.rms)) return;
  const double norm = health.rms * root_of_elements_;
  readings.add(exploding(norm, usual_, step.options.threshold_exploding, true));
  if (matrix_ && norm > 0) readings.add(vanishing(norm, step));
}

/// A gradient that shrinks together with all the others has converged; it vanishes where it alone is small.
Reading SiteWatch::vanishing(double norm, const StepContext& step) const {
  Reading reading;
  reading.condition = Condition::vanishing;
  reading.value = norm;
  if (usual_.size() > 0) reading.baseline = usual_.median();
  reading.enter_steps = kVanishingSteps;
  reading.leave_steps = kLeaveSteps;
  const double share = norm / step.gradient_norm;
  const double threshold = step.options.threshold_vanishing;
  const bool learning = step.gradient_norm > kStillLearning;
  const bool on_its_way_up = usual_.size() > 0 && norm > kVanishingRise * usual_.median();
  reading.enter = learning && !on_its_way_up && norm < threshold && share < kVanishingShare;
  reading.stay =
      reading.enter || (learning && norm < threshold * kVanishingLeave && share < kVanishingShare * kVanishingLeave);
  reading.confidence = confidence(std::min(threshold / norm, kVanishingShare / share), usual_.size() > 0);
  return reading;
}

void SiteWatch::read_parameter(const Health& health, const StepContext& step, Readings& readings) {
  if (known(health.rms)) readings.add(exploding(health.rms, usual_, step.options.threshold_exploding, true));
  if (!matrix_) return;
  if (updates_ == 0) from_zero_ = !known(health.update) || health.update > kStartsAtZero;
  if (std::isfinite(health.update) && health.update > 0) readings.add(unstable(health));
}

Reading SiteWatch::unstable(const Health& health) const {
  Reading reading;
  reading.condition = Condition::unstable;
  reading.value = health.update;
  reading.leave_steps = kLeaveSteps;
  const bool compared = second_.size() >= kFewest;
  if (compared) reading.baseline = second_.floor();
  const double factor = second_.ready() ? kUnstableFactor : kUnstableFactorEarly;
  const bool above_usual = compared && health.update > kUnstable && health.update > factor * second_.floor();
  const bool alone = health.update > kUnstableAlone;
  const bool grows_from_zero = from_zero_ && health.update < kFromZero / (updates_ + 1);
  const bool shrunk = usual_.ready() && health.rms < kShrunk * usual_.early();
  reading.enter = (above_usual || alone) && !grows_from_zero && !shrunk;
  reading.enter_steps = above_usual ? kUnstableSteps : kUnstableStepsAlone;
  reading.stay = reading.enter || health.update > kUnstableLeave;
  reading.confidence = confidence(health.update / (above_usual ? kUnstable : kUnstableAlone), second_.ready());
  return reading;
}

void SiteWatch::read_activation(const Health& health, const StepContext& step, Readings& readings) const {
  // A model's output goes where its targets are, and hidden units follow: that is learning as long as the loss falls.
  if (known(health.rms) && !model_output_) {
    Reading reading = exploding(health.rms, usual_, step.options.threshold_exploding, true);
    if (step.improved) reading.enter = reading.at_once = false;
    readings.add(reading);
  }
  const bool ends_the_model = order_ >= 0 && order_ > step.last_layer;
  if (known(health.saturated) && !softmax_ && !ends_the_model) readings.add(saturated(health.saturated, step));
  if (known(health.dead)) readings.add(dead(health.dead, step));
}

Reading SiteWatch::saturated(double fraction, const StepContext& step) const {
  Reading reading = fraction_reading(Condition::saturated, fraction);
  const bool compared = second_.ready();
  if (compared) reading.baseline = second_.floor();
  const bool above_usual = !compared || fraction > second_.floor() + kSaturatedRise;
  reading.enter = fraction > kSaturated && above_usual && !step.improved;
  reading.enter_steps = compared ? kSaturatedSteps : kSaturatedStepsEarly;
  reading.stay = fraction > kSaturatedLeave;
  reading.confidence = confidence_of_fraction(fraction, kSaturated, compared);
  return reading;
}

Reading SiteWatch::dead(double fraction, const StepContext& step) const {
  Reading reading = fraction_reading(Condition::dead, fraction);
  const bool compared = third_.ready();
  if (compared) reading.baseline = third_.floor();
  const bool above_usual = !compared || fraction > third_.floor() + kDeadRise;
  const bool sparse = step.improved && fraction < kDeadThoughLearning;
  reading.enter = fraction > kDead && above_usual && !sparse;
  reading.enter_steps = fraction > kDeadAll ? kDeadStepsAll : kDeadSteps;
  reading.stay = fraction > kDeadLeave;
  reading.confidence = confidence_of_fraction(fraction, kDead, compared);
  return reading;
}

void SiteWatch::read_loss(const Health& health, const StepContext& step, Readings& readings) const {
  if (!known(health.rms)) return;
  const double loss = health.rms;
  if (loss > 0) readings.add(exploding(loss, usual_, step.options.threshold_exploding, false));
  if (losses_.size() < kLossEnough) return;
  Reading reading;
  reading.condition = Condition::spiking;
  reading.value = loss;
  reading.baseline = losses_.median();
  reading.leave_steps = kLeaveSteps;
  const double noise = std::max(kNormal * losses_.mad(), Baseline::kLeastSpread * std::fabs(reading.baseline));
  const double height = loss - reading.baseline;
  const bool positive = reading.baseline > 0 && usual_.ready();
  // Below 0 a factor means nothing: there the spike must be as high as the loss is large.
  const double least = positive ? std::max(kLossHeight * early_loss_, (kLossFactor - 1) * reading.baseline)
                                : std::max(early_loss_, std::fabs(reading.baseline));
  const double z = positive ? std::min(height / noise, usual_.z(loss)) : height / noise;
  reading.enter = z > kSpikeZ && height > least && outdoes_earlier_spikes(loss);
  reading.stay = z > kSpikeLeaveZ && height > least / 2;
  reading.confidence = confidence(std::min(z / kSpikeZ, height / least), true);
  readings.add(reading);
}

void SiteWatch::read_batch(const Health& health, Readings& readings) const {
  if (whole_numbers_) return;  // ids and labels have no magnitude
  Reading widest = spiking_batch(health.absmax, usual_);
  const Reading typical = spiking_batch(health.rms, second_);
  if (typical.enter && !widest.enter) widest = typical;
  widest.enter = widest.enter && outdoes_earlier_spikes(health.absmax);
  widest.stay = widest.stay || typical.stay;
  readings.add(widest);
}

bool SiteWatch::outdoes_earlier_spikes(double value) const {
  return spikes_ < kSpikesAllowed || value > 2 * highest_spike_;
}

void SiteWatch::learn_spike(double value, const std::optional<Change>& change) {
  if (machine_.state() != Condition::spiking) return;
  if (change) ++spikes_;
  highest_spike_ = std::max(highest_spike_, value);
}

bool SiteWatch::flagged(const Readings& readings, Condition condition) const {
  return machine_.state() == condition || readings.entering(condition);
}

/// Flagged values stay out, each of the quantity that was flagged.
void SiteWatch::learn(const Health& health, const Readings& readings) {
  const bool explodes = flagged(readings, Condition::exploding);
  const bool spikes = flagged(readings, Condition::spiking);
  switch (role_) {
    case SiteRole::gradient:
      if (!explodes && machine_.state() != Condition::vanishing) usual_.add(health.rms * root_of_elements_);
      break;
    case SiteRole::parameter:
      if (!explodes) usual_.add(health.rms);
      if (!flagged(readings, Condition::unstable)) second_.add(health.update);
      if (!known(health.update) || health.update > 0) ++updates_;
      break;
    case SiteRole::activation:
      if (!explodes) usual_.add(health.rms);
      if (known(health.saturated) && !flagged(readings, Condition::saturated))
        second_.add(std::max(double{health.saturated}, kLeastFraction));
      if (known(health.dead) && !flagged(readings, Condition::dead))
        third_.add(std::max(double{health.dead}, kLeastFraction));
      break;
    case SiteRole::loss:
      if (explodes || spikes || !known(health.rms)) break;
      usual_.add(health.rms);
      losses_.add(health.rms);
      if (losses_.size() <= Baseline::kEnough)
        early_loss_ = std::max(std::fabs(losses_.median()), kNormal * losses_.mad());
      break;
    case SiteRole::input:
    case SiteRole::target:
      if (spikes) break;
      usual_.add(health.absmax);
      second_.add(health.rms);
      break;
    case SiteRole::optimizer:
    case SiteRole::clipping: break;
  }
}

}  // namespace firstfault::detect
