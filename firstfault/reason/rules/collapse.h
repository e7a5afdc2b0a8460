// The output came to ignore the input: the same answer for every sample.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "firstfault/reason/rules/reading.h"

namespace firstfault::reason {

struct Collapse {
  std::int64_t step = 0;  ///< from which on the output is constant
  std::string module;     ///< first activation of the network that is constant as well, "" for the output alone
  std::vector<Evidence> evidence;
};

/// The output varied between samples in the first step, and no longer does from some step on, while the loss does not
/// improve.
std::optional<Collapse> output_collapse(const Reading& reading);
std::string collapse_condition();

}  // namespace firstfault::reason
