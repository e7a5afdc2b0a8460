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

struct Mechanism {
  std::string_view name;
  std::string_view condition;  ///< one line for the documentation
  std::optional<Verdict> (*judge)(const OriginEvidence&);
};

/// In the order in which they are asked: the specific before the general.
std::span<const Mechanism> mechanisms() noexcept;

}  // namespace firstfault::reason
