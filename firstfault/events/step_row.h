// The numbers of one optimizer step.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "firstfault/events/health.h"

namespace firstfault {

struct StepRow {
  std::int64_t step = 0;   ///< optimizer steps attempted, from 0
  double seconds = 0;      ///< since the run began
  double loss = kUnknown;  ///< as given or as seen at the root of backward(); may be Inf; see loss_state
  enum class Loss : std::uint8_t { unknown, finite, nan, inf } loss_state = Loss::unknown;
  double gradient_norm = kUnknown;   ///< L2 over all gradients as the optimizer takes them; Inf where one is not finite
  double update_ratio = kUnknown;    ///< rms of all changes over rms of all parameters
  double parameter_norm = kUnknown;  ///< L2, estimated from a fixed sample
  double lr = kUnknown;              ///< the largest of the groups
  double loss_scale = kUnknown;      ///< of a GradScaler; NaN: none
  std::int32_t optimizer = 0;        ///< whose step it was: a GAN's two take turns, and their losses do not compare
  std::int32_t backwards = 0;        ///< backward passes since the last step
  bool gradients_left_over = false;  ///< the first of them added to gradients that were not zero
  bool skipped = false;              ///< a GradScaler or a guard left the step out
  bool reset_state = false;          ///< the optimizer had state before this step and had lost it when it began
  std::map<std::string, double> logged;  ///< numbers that the program gave to log()
  std::vector<Health> sites;             ///< by index of Run::sites; shorter or empty: not measured, or no longer kept

  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  bool bad_loss() const noexcept { return loss_state == Loss::nan || loss_state == Loss::inf; }
};

}  // namespace firstfault
