// Is the batch of one step unlike the batches before it?
#pragma once

#include <cstdint>
#include <optional>

#include "firstfault/reason/rules/reading.h"

namespace firstfault::reason {

// A batch statistic's own history: robust z above 6, as OLMo-core asks of a loss, and well over its level.
constexpr double kOutlierZ = 6;
constexpr double kOutlierTimes = 5;
constexpr std::size_t kOutlierWindow = 64;
constexpr std::size_t kOutlierHistory = 8;
constexpr double kAbsurdTimes = 1e3;  ///< so far that a shorter history is enough
constexpr std::size_t kAbsurdHistory = 2;

constexpr std::size_t kShortHistory = 3;
constexpr double kFarAbove = 100;  ///< over the largest of a shorter history
constexpr double kAboveMost = 3;   ///< over the largest of the window, for losses and gradient norms

struct Outlier {
  std::int32_t site = -1;
  double value = 0;
  double usual = 0;
  double z = 0;
  double times() const { return value / usual; }
};

/// The input or target (by role) whose largest magnitude or rms stands out most in that step; none if none does.
std::optional<Outlier> batch_outlier(const Reading& reading, SiteRole role, std::int64_t step);

/// "input 0 reaches 3e38 in step 11; in the 11 steps before it was about 3.2".
Evidence outlier_evidence(const Reading& reading, const Outlier& outlier, std::int64_t step);

/// A step in which the loss or the gradient norm stood out of its own history, worst first; none if none did.
struct Spike {
  std::int64_t step = -1;
  double loss_times = 1;
  double gradient_times = 1;
};
std::optional<Spike> spike_at(const Reading& reading, std::int64_t step);

constexpr double kAfterTimes = 3;  ///< median loss of the steps after a spike, over the level before it
constexpr std::int64_t kAfter = 10;

/// The run did not come back at once from what happened in that step.
bool thrown_back(const Reading& reading, std::int64_t step);

}  // namespace firstfault::reason
