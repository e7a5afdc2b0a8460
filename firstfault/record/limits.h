// How much of each kind a run holds, in memory and in its file.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace firstfault::record {

enum class Kind : std::uint8_t { site, transition, fact, origin, warning, action };

inline constexpr std::int64_t kMaxSites = 4096;
inline constexpr std::int64_t kMaxTransitions = 10'000;
inline constexpr std::int64_t kMaxFacts = 10'000;
inline constexpr std::int64_t kMaxOrigins = 1'000;  ///< each may be some kB: a stack, a path, operands
inline constexpr std::int64_t kMaxWarnings = 256;
inline constexpr std::int64_t kMaxActions = 10'000;  ///< of a guard

inline constexpr const char* kStepsMustRise = "A step came again, or out of order: its row is left out.";

/// Counts what comes in. No lock: one thread at a time.
class Limits {
 public:
  /// Whether one more of `kind` may be kept. The first that may not leaves a warning to be taken.
  bool admit(Kind kind);
  /// The text for Run::warnings since the last call, if a limit was reached.
  std::optional<std::string> take_warning();

 private:
  std::array<std::int64_t, 6> counts_{};
  std::optional<std::string> warning_;
};

}  // namespace firstfault::record
