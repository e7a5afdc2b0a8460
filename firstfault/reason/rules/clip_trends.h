// What the clips of a run came to: a warning that clipping itself keeps silent.
#pragma once

#include <string>
#include <vector>

#include "firstfault/reason/rules/reading.h"

namespace firstfault::reason {

struct ClipTrends {
  const Transition* chronic = nullptr;   ///< more than half of the newest 100 steps were clipped
  const Transition* rising = nullptr;    ///< three times the share of the first 100
  const Transition* dominant = nullptr;  ///< one parameter is behind most of them
  std::string parameter;                 ///< that one's name

  bool any() const noexcept { return chronic || rising; }
};

/// The first of each until `step`.
ClipTrends clip_trends(const Run& run, std::int64_t step);

/// Sentences about them, in order of time. Empty where clips were the exception.
std::vector<Evidence> evidence_of(const ClipTrends& trends);

/// Whether a cause shows in the size of gradients, so that clips before its harm speak for it.
bool clips_speak_for(std::string_view cause);

}  // namespace firstfault::reason
