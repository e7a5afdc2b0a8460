// A mechanism: evidence in, verdict out. One file each, one line in list.cpp.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "firstfault/events/evidence.h"

namespace firstfault::reason {

struct Verdict {
  std::string cause;
  std::string because;
  std::string advice;
};

/// The words are the documentation's: docs/mechanisms/ is made from them.
struct Mechanism {
  std::string_view name;
  std::string_view condition;  ///< when it fits, in one line
  std::string_view cause;      ///< what it stands for, a name of the vocabulary of causes; with the exceptions
  std::string_view reading;    ///< what is read off the evidence, and why that is enough
  std::string_view remedy;
  std::optional<Verdict> (*judge)(const OriginEvidence&);
};

/// In the order in which they are asked: the specific before the general.
std::span<const Mechanism> mechanisms() noexcept;

}  // namespace firstfault::reason
