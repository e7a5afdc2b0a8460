// A number as the arithmetic of an optimizer holds it.
#pragma once

#include <c10/core/ScalarType.h>

namespace firstfault::measure {

/// An eps as it is where it is added to a root of second moments: in the dtype of the parameter (1e-8 is 0 in float16),
/// whose state has it too; in float32 at least where the kernel is fused, as torch's compute in it.
double eps_as_held(double eps, c10::ScalarType of_parameter, bool fused = false);

}  // namespace firstfault::measure
