// One site's state: its baselines, its state machine, and which of its numbers speak for which condition. Internal.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "firstfault/detect/baseline.h"
#include "firstfault/detect/detector.h"
#include "firstfault/detect/state_machine.h"
#include "firstfault/events/health.h"
#include "firstfault/events/site.h"

namespace firstfault::detect {

/// What a site must know of the rest of the step.
struct StepContext {
  DetectorOptions options;
  double gradient_norm = 0;      ///< L2 over the finite gradients of this step
  bool harm = false;             ///< a NaN or Inf is in the loss, in a parameter or in a gradient that was used
  bool improved = false;         ///< the loss is far below its early level
  std::int32_t last_layer = -1;  ///< largest order of a site that has a parameter
};

/// At most one Reading per condition.
class Readings {
 public:
  void add(const Reading& reading) { all_[size_++] = reading; }
  std::span<const Reading> all() const { return {all_.data(), size_}; }
  bool entering(Condition condition) const;

 private:
  std::array<Reading, 4> all_;
  std::size_t size_ = 0;
};

class SiteWatch {
 public:
  explicit SiteWatch(const Site& site);

  std::optional<Change> observe(const Health& health, const StepContext& step);
  Condition state() const noexcept { return machine_.state(); }

 private:
  void read_gradient(const Health& health, const StepContext& step, Readings& readings) const;
  void read_parameter(const Health& health, const StepContext& step, Readings& readings);
  void read_activation(const Health& health, const StepContext& step, Readings& readings) const;
  void read_loss(const Health& health, const StepContext& step, Readings& readings) const;
  void read_batch(const Health& health, Readings& readings) const;
  Reading saturated(double fraction, const StepContext& step) const;
  Reading dead(double fraction, const StepContext& step) const;
  Reading vanishing(double norm, const StepContext& step) const;
  Reading unstable(const Health& health) const;
  bool outdoes_earlier_spikes(double value) const;

  bool flagged(const Readings& readings, Condition condition) const;
  void learn(const Health& health, const Readings& readings);
  void learn_spike(double value, const std::optional<Change>& change);

  SiteRole role_;
  double root_of_elements_ = 1;
  std::int32_t order_ = -1;
  bool matrix_ = false;  // two dimensions or more: what a bias does at 0 says nothing
  bool whole_numbers_ = false;
  bool softmax_ = false;
  bool model_output_ = false;

  StateMachine machine_;
  Baseline usual_;         // gradient: norm; parameter, activation: rms; batch: absmax; loss: where it is above 0
  Baseline second_;        // parameter: update; activation: saturated; batch: rms
  Baseline third_;         // activation: dead
  Window losses_;          // signed
  double early_loss_ = 0;  // typical magnitude of the first ones
  int updates_ = 0;        // steps that moved the parameter
  bool from_zero_ = false;
  int spikes_ = 0;
  double highest_spike_ = 0;
};

}  // namespace firstfault::detect
