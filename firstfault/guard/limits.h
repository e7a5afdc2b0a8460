// Caps of what a guard keeps of a run, for the run itself as for Python.
#pragma once

#include <cstddef>
#include <cstdint>

namespace firstfault::guard {

inline constexpr std::size_t kMostSnapshots = 16;
inline constexpr std::int64_t kMostClips = 4096;  ///< kept one by one; all are counted in the facts of the run
inline constexpr int kMostLookedInto = 4;         ///< faulty steps of a run, by experiments
inline constexpr int kMostSearches = 16;          ///< faulty steps of a run that are replayed for their origin alone
/// Of that many steps the results of one are read, also where the watch has seen what the optimizer wrote.
inline constexpr std::int64_t kReadAnyway = 8;

}  // namespace firstfault::guard
