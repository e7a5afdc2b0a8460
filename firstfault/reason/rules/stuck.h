// A run whose loss stands still: what plateau and loss_not_decreasing share.
#pragma once

#include <optional>

#include "firstfault/reason/rules/reading.h"

namespace firstfault::reason {

constexpr std::size_t kStuckSteps = 15;
constexpr double kStuckUpdate = 3e-6;  ///< rms of a step over rms of the parameters: a thousandth of what is ordinary

struct Stuck {
  double update = 0;        ///< median update ratio of the second half
  bool from_start = false;  ///< as small in the first half
  double total = 0;         ///< of all steps that were kept: the parameters have moved no further
};

/// The parameters hardly move over at least kStuckSteps steps although gradients are there, and the loss is no better
/// than at the start (from_start) or far from 0.
std::optional<Stuck> stuck(const Reading& reading);

}  // namespace firstfault::reason
