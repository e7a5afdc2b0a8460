// What earlier batches were like: the last good one, and the range of the values of all of them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "firstfault/live/guard/replay.h"

namespace firstfault::guard {

/// Cheap enough for every step: it keeps references, and takes the least and greatest value of each tensor on the CPU,
/// after the first steps only of one batch in eight. Not thread-safe.
class BatchMemory {
 public:
  struct Range {
    double least = 0, greatest = 0;
  };

  /// The batch of a step in which nothing was wrong.
  void remember(const BatchTensors& batch);
  /// The last of them; none where there was none, or where it has been written to since.
  BatchTensors previous() const;
  /// Per tensor of the batch; nullopt where nothing is known, or where batches differed in their dtypes.
  const std::vector<std::optional<Range>>& ranges() const noexcept { return ranges_; }
  std::int64_t batches() const noexcept { return batches_; }  ///< that the ranges are of

 private:
  void widen(const BatchTensors& batch);

  BatchTensors last_;
  std::vector<std::int64_t> versions_;
  std::vector<std::optional<Range>> ranges_;
  std::int64_t seen_ = 0, batches_ = 0;
};

}  // namespace firstfault::guard
