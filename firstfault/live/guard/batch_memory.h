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
  static constexpr std::int64_t kEnough = 2;  ///< batches, for their range to say something

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

/// Clipped to the range, of floating numbers with half its width on each side. Undefined where nothing lies outside.
/// NaN and Inf stay: they are no outliers. Whole numbers (`whole`) may be indices, lengths and masks, and floating ones
/// that never varied a mask or a weight: what clipping does to those says nothing about outliers.
at::Tensor clipped_to(const std::optional<BatchMemory::Range>& range, const at::Tensor& tensor, bool whole);

}  // namespace firstfault::guard
