// The weights as the first step shows them, against what their fan-in asks for.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "firstfault/reason/rules/reading.h"

namespace firstfault::reason {

struct Weight {
  std::int32_t site = -1;
  std::int64_t fan_in = 1;
  double rms = 0;
  double gain = 0;  ///< rms * sqrt(fan_in): 1.4 with He's initialisation, 0.58 with PyTorch's default
};

/// Weights of linear, convolutional and recurrent layers (two dimensions or more, no embeddings) before the first step,
/// reckoned back from what was measured after it; in the order of the network.
std::vector<Weight> initial_weights(const Reading& reading);

std::optional<Weight> largest_gain(const Reading& reading);

/// Median over all weights; NaN for none.
double usual_gain(const Reading& reading);

/// 0 in every step that was looked at.
bool stays_zero(const Reading& reading, const Weight& weight);

}  // namespace firstfault::reason
