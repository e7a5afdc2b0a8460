// Health of what a model is fed.
#pragma once

#include <ATen/core/Tensor.h>

#include "firstfault/events/health.h"

namespace firstfault::watch {

/// Of a floating-point tensor of the batch. `usual`: its largest magnitude in the step before, NaN for none; where this
/// one is far above it, the row that holds it is looked for.
Health batch_health(const at::Tensor& tensor, float usual);

}  // namespace firstfault::watch
