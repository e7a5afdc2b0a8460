// A rule: the numbers of a run in, a hypothesis about the cause out. One file each, one line in list.cpp.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "firstfault/events/hypothesis.h"
#include "firstfault/reason/rules/reading.h"

namespace firstfault::reason {

/// The words are the documentation's: docs/rules/ is made from them.
struct Rule {
  std::string_view name;       ///< the cause, a name of the vocabulary: "lr_too_high"
  std::string_view symptom;    ///< what a person sees
  std::string (*condition)();  ///< when it speaks, with the thresholds of the code
  std::string_view evidence;   ///< what it reads, and why that is enough
  std::string_view advice;
  std::string_view source;    ///< where the thresholds come from
  bool stands_alone = false;  ///< a defect of the program by itself, whatever else went wrong: no rival to others
  std::optional<Hypothesis> (*judge)(const Reading&) = nullptr;
};

/// In the order in which they are asked: the specific before the general. Of hypotheses with the same confidence the
/// one whose rule comes first is shown first.
std::span<const Rule> rules();

}  // namespace firstfault::reason
