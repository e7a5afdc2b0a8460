// The smallest set of samples that makes a step fail, found by asking whether it fails with some of them only.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

namespace firstfault::guard {

/// Whether the step fails with these samples alone, in ascending order; nullopt: that cannot be said (it did not run,
/// or the budget is spent).
using Fails = std::function<std::optional<bool>(const std::vector<std::int64_t>& samples)>;

enum class Blame : std::uint8_t {
  some,       ///< these: each set alone fails, and all other samples together do not
  all,        ///< every sample alone, or nearly: no one in particular
  together,   ///< it takes all of them, or nearly: no one in particular
  none,       ///< it fails without any of them, or does not fail with all
  undecided,  ///< see Fails
};

struct FailingSets {
  Blame blame = Blame::undecided;
  std::vector<std::vector<std::int64_t>> sets;  ///< of samples that fail only together: more than one in a set
  int calls = 0;

  std::vector<std::int64_t> samples() const;  ///< of all sets, ascending
};

/// A variant of delta debugging (Zeller and Hildebrandt, 2002) that bisects prefixes: the shortest one that fails ends
/// in a sample that is needed; what else is needed lies before it. For k samples of n that each fail alone at most
/// k * (log2(n) + 2) + 5 calls, for a set of m that fail only together m * (log2(n) + 1) + 9. Exact where more samples
/// never cure. `empty_fails`: whether the step fails without any, where that is known.
FailingSets smallest_failing_sets(std::int64_t n, const Fails& fails, std::optional<bool> empty_fails = {});

}  // namespace firstfault::guard
