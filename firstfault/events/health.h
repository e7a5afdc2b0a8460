// What one pass over a tensor says about it.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace firstfault {

/// Measurements of a channel without one value other than 0, after which it counts as dead. SageMaker Debugger and
/// AutoTrainer judge by one batch; units that are silent for most samples need more.
inline constexpr int kDeadWindow = 16;

/// Of one site in one step. Fractions are 0 to 1. NaN: not measured, or it has no meaning for this role. Statistics are
/// of the finite elements, taken from a fixed sample of them where a tensor is large (a gradient's rms is exact).
struct Health {
  static constexpr float kAbsent = std::numeric_limits<float>::quiet_NaN();

  std::int64_t nonfinite = -1;  ///< elements that are NaN or Inf; -1: the site was not seen in this step
  float rms = kAbsent;          ///< root mean square; the value itself for a loss (signed)
  float absmax = kAbsent;
  float mean = kAbsent;
  float zeros = kAbsent;      ///< fraction of elements that are exactly 0
  float saturated = kAbsent;  ///< activation: fraction of elements at a flat end of the nonlinearity
  float dead = kAbsent;    ///< activation: fraction of channels that gave 0 for every sample looked at, for kDeadWindow
                           ///< measurements
  float varies = kAbsent;  ///< activation: std between samples over rms; 0: the output ignores the input
  float columns = kAbsent;      ///< input, target: largest over smallest column scale (0 scales left out)
  float update = kAbsent;       ///< parameter: rms of the step's change over rms of the parameter before it
  float flips = kAbsent;        ///< gradient: cosine between this step's and the last step's (sampled), -1 to 1
  float lr = kAbsent;           ///< optimizer: learning rate
  float second = kAbsent;       ///< optimizer: smallest non-zero sqrt(v) sampled; 0 where all are 0
  float eps = kAbsent;          ///< optimizer: eps as its dtype holds it
  float state_steps = kAbsent;  ///< optimizer: smallest number of steps that a parameter's state has seen; 0: no state

  std::int32_t row = -1;    ///< input, target: index in dim 0 of the largest magnitude, where it stands out
  std::int32_t unused = 0;  ///< no padding: run files hold this struct as it is

  bool seen() const noexcept { return nonfinite >= 0; }
  bool bad() const noexcept { return nonfinite > 0; }
};

/// A number was measured (it may be Inf).
inline bool known(float value) noexcept { return !std::isnan(value); }

}  // namespace firstfault
