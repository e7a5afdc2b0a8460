// A site's state changed: the only thing that is stored as an event.
#pragma once

#include <cstdint>
#include <string_view>

namespace firstfault {

enum class Condition : std::uint8_t {
  healthy,
  non_finite,  ///< holds a NaN or Inf
  exploding,   ///< far above its own baseline and an absolute floor
  vanishing,   ///< far below
  saturated,   ///< more than half of the elements at a flat end of the nonlinearity
  dead,        ///< more than half of the channels silent for a whole window
  spiking,     ///< one step far above the baseline: loss, batch
  unstable,    ///< the step moves a parameter by more than a tenth of itself
  chronic,     ///< clipping: more than half of the newest 100 steps are clipped
  rising,      ///< clipping: three times the share of the run's first 100 steps
  dominant,    ///< clipping: one parameter is behind most clips
};

constexpr std::string_view name_of(Condition condition) noexcept {
  constexpr std::string_view names[] = {"healthy", "non-finite", "exploding", "vanishing", "saturated", "dead",
                                        "spiking", "unstable",   "chronic",   "rising",    "dominant"};
  return names[static_cast<int>(condition)];
}

struct Transition {
  std::int64_t step = 0;
  std::int32_t site = -1;  ///< index of Run::sites
  Condition from = Condition::healthy;
  Condition to = Condition::healthy;
  double value = 0;       ///< the quantity that decided: rms, saturated fraction …
  double baseline = 0;    ///< the site's own, median of the log's window; NaN where there is none yet
  double confidence = 0;  ///< 0 to 1
};

}  // namespace firstfault
