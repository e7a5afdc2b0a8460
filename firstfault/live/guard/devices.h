// Gradients that only ATen can reach: norms and scaling by its foreach ops, without a synchronisation.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "firstfault/live/guard/clip.h"
#include "firstfault/live/guard/gradients.h"

namespace firstfault::guard {

struct DeviceNorms {
  at::Tensor norms;                ///< float64 where the device has it, on the first of their devices; undefined: none
  std::vector<std::size_t> which;  ///< their places in the list of gradients
};

/// The p-norm of each that is not in memory.
DeviceNorms device_norms(const std::vector<Gradient>& gradients, double p);

/// Of a factor for tensors of this dtype, as wide as the ops compute with: of a half type the factor itself would lose
/// digits, or be 0.
at::ScalarType type_of_factor(at::ScalarType type);

/// Copies a tensor of real numbers to the host: one synchronisation.
std::vector<double> fetched(const at::Tensor& numbers);

/// What the device decides by itself, all gradients being there: scales (and zeroes) as clip_grad_norm_ would, where
/// on_nonfinite is skip or zero.
ClipRecord clip_on_device(const std::vector<Gradient>& gradients, const DeviceNorms& norms, double max_norm,
                          const ClipOptions& options);

}  // namespace firstfault::guard
