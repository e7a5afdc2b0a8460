// The tables of the run file; docs/run-file.md explains them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "firstfault/events/health.h"

namespace firstfault::record {

inline constexpr std::int64_t kApplicationId = 0x46465246;  // "FFRF"
inline constexpr std::int64_t kSchemaVersion = 2;
inline constexpr int kPageSize = 4096;
/// Where the count of commits stands in the file, big-endian, outside of any transaction: within the 20 bytes of the
/// header that SQLite reserves (https://sqlite.org/fileformat2.html, section 1.3), neither reads nor checks.
inline constexpr int kCommitsOffset = 72;

/// Added to `PRAGMA user_version` (which stands at byte 60) in every commit, and taken off in the main file whenever
/// all commits have been moved into it: the main file alone is whole where it is not set. The first page, with this, is
/// the first that a checkpoint moves.
inline constexpr std::int64_t kMovingFlag = 0x10000;
inline constexpr int kVersionOffset = 60;

extern const char* const kSchema;

// health.data is this struct, once per site.
static_assert(std::is_trivially_copyable_v<Health> && sizeof(Health) == 72 && offsetof(Health, rms) == 8 &&
              offsetof(Health, row) == 64);

}  // namespace firstfault::record
