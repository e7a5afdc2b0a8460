// How large the values of a tensor can be, where that is known without looking at each: by arithmetic on the bounds of
// what an op reads. Where it is known that none can overflow, nobody has to look.
#pragma once

#include <limits>

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "firstfault/live/intercept/frame.h"

namespace firstfault::trace {

/// Every value is finite, its magnitude at most `most`, and at least `least`.
struct Bounds {
  float most = std::numeric_limits<float>::infinity();  ///< Inf: not known
  float least = -std::numeric_limits<float>::infinity();

  bool known() const noexcept { return most <= std::numeric_limits<float>::max(); }
};

/// Beyond it a tensor is looked at, which gives its true size: bounds of sums of many products are far too wide. Far
/// below where float32 ends, so that the product of two such numbers, and a sum in any order, does not overflow.
inline constexpr double kMostBound = 1e18;

using ResultBounds = c10::SmallVector<Bounds, 3>;

/// Of what the op returns, in order, by those of its inputs (`operands[i]` of frame.inputs[i]; of an argument that it
/// writes, before). Results that are left out, or beyond kMostBound, are not known. All are float32.
ResultBounds bounds_of(const intercept::Frame& frame, c10::ArrayRef<Bounds> operands,
                       c10::ArrayRef<const at::Tensor*> results);

}  // namespace firstfault::trace
