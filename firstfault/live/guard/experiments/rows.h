// Which axis of a batch's tensors is the samples', and batches made of some samples only.
#pragma once

#include <cstdint>
#include <vector>

#include "firstfault/live/guard/replay.h"

namespace firstfault::guard {

struct Rows {
  std::int64_t count = 0;                                                  ///< samples; 0: no axis was found
  std::vector<int> axis;                                                   ///< per tensor; -1: it has none
  bool alike(const BatchTensors& batch, const BatchTensors& other) const;  ///< same shapes and dtypes along all of them
};

/// The commonest length of a first axis; a tensor without it may have it as its second (time first).
Rows rows_of(const BatchTensors& batch);
/// The samples that are listed stay; the others are those of `other`, which is alike.
BatchTensors with_rows_of(const BatchTensors& batch, const BatchTensors& other, const Rows& rows,
                          const std::vector<std::int64_t>& kept);
/// Only the samples that are listed.
BatchTensors only_rows(const BatchTensors& batch, const Rows& rows, const std::vector<std::int64_t>& kept);
/// The rows of `other` after those of the batch; {} where they do not fit.
BatchTensors appended(const BatchTensors& batch, const BatchTensors& other, const Rows& rows);

}  // namespace firstfault::guard
