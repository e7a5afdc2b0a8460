// Puts numbers into a ClipRecord, and tells listeners.
#pragma once

#include <cstdint>
#include <vector>

#include "firstfault/live/guard/clip.h"
#include "firstfault/live/guard/gradients.h"

namespace firstfault::guard {

/// What torch.nn.utils adds to a norm before it divides by it.
inline constexpr double kNormEps = 1e-6;

struct Measured {
  std::vector<Gradient>& gradients;
  std::vector<double>& norms;  ///< of each; not finite where it holds NaN or Inf
  double p = 2;
};

/// Norm, step and the largest; where a norm is not finite, an entry in `nonfinite` without counts.
void fill(ClipRecord& record, const Measured& measured, const ClipOptions& options);
/// The same where the tensors are not at hand: `indices` of the gradients.
void fill(ClipRecord& record, const std::vector<std::int64_t>& indices, const std::vector<double>& norms,
          const ClipOptions& options);

/// Where `record.nonfinite` has entries: throws Error; or false, with nothing changed; or these gradients, and their
/// norms, are 0 now. `where`: "clip_grad_norm_".
bool settle_nonfinite(ClipRecord& record, const Measured& measured, OnNonfinite policy, const char* where);

/// The same where another rank has them.
[[noreturn]] void refuse_other_rank(const char* where);

/// Between a vector and what a clip made of it; 0 where either is 0.
double angle_of(const Clamped& sums);

/// Throws where the p of a norm or a limit is none.
void check(double limit, const ClipOptions& options, const char* where);

void tell_listeners(const ClipRecord& record, at::TensorList gradients);

}  // namespace firstfault::guard
