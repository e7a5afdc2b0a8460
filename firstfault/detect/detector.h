// Watches the numbers of a run step by step and says when the state of a site changes.
#pragma once

#include <memory>
#include <vector>

#include "firstfault/events/site.h"
#include "firstfault/events/step_row.h"
#include "firstfault/events/transition.h"

namespace firstfault {

/// Thresholds that a user may move. Those of firstfault/detect/thresholds.h are fixed. Every test but non_finite asks
/// for an absolute threshold and for the site's own baseline (a robust one, see detect/baseline.h): systems that have
/// only one of the two disagree by orders of magnitude and are wrong on models of another scale.
struct DetectorOptions {
  double threshold_vanishing = 1e-6;  ///< L2 norm of one parameter's gradient (neuraldbg: 1e-6)
  double threshold_exploding = 1e3;   ///< L2 norm of one parameter's gradient (neuraldbg: 1e3); rms of an activation or
                                      ///< parameter; a loss
};

/// States per role; any site can be `non_finite`: a loss, gradient or parameter as soon as it holds a NaN or Inf, an
/// input, target or activation only in a step in which one of those does too (a NaN that marks a missing label is
/// meant).
///  - gradient: exploding, vanishing. Steps that a GradScaler or a guard skipped are not looked at.
///  - parameter: exploding, unstable (update ratio).
///  - activation: exploding, saturated, dead.
///  - loss: exploding, spiking.   - input, target (floating point): spiking.   - optimizer: non_finite only.
/// Pure: numbers in, transitions out; the same rows give the same transitions. One per run, one thread at a time.
/// Memory: about 1.5 KB per site at most. Time: well under 1 us per site and step.
class Detector {
 public:
  /// Throws Error (bad_value) for thresholds that are not finite and above 0, or where vanishing >= exploding.
  explicit Detector(DetectorOptions options = {});
  ~Detector();
  Detector(Detector&&) noexcept;
  Detector& operator=(Detector&&) noexcept;

  /// `sites` is Run::sites: only ever added to between calls; `row.sites` is by the same index and may be shorter. Rows
  /// come in ascending order of steps. Transitions are in order of sites, at most one per site.
  std::vector<Transition> observe(const std::vector<Site>& sites, const StepRow& row);

  /// State of a site now; healthy for one that was never observed.
  Condition state(std::size_t site) const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace firstfault
