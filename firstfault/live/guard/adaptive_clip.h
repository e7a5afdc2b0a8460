// A clipping limit from the run's own history of gradient norms.
#pragma once

#include <limits>
#include <span>
#include <vector>

#include "firstfault/detect/baseline.h"
#include "firstfault/live/guard/clip.h"

namespace firstfault {

struct AdaptiveClipOptions {
  double z = 3;                                               ///< how far above the usual norm the limit is, in sigma
  std::size_t window = 64;                                    ///< norms that are remembered, at least 16
  double max_norm = std::numeric_limits<double>::infinity();  ///< the limit is never above it
};

/// Clips a norm that is unusual for this run: to exp(median + z * spread) of the logs of the newest norms, where spread
/// is 1.4826 * MAD, at least 0.05 (detect::Baseline). Median and MAD bear outliers in up to half of the window; what is
/// remembered of a clipped norm is the limit it was clipped to, so that a lasting rise is followed, but slowly: by at
/// most one such factor in half a window. Norms that are not finite are never remembered. Until 16 are, max_norm alone
/// limits. Not thread-safe.
class AdaptiveClip {
 public:
  explicit AdaptiveClip(AdaptiveClipOptions options = {});

  /// As clip_grad_norm_ with limit(). Reads the norm: one synchronisation where gradients are on another device.
  ClipRecord clip(at::TensorList parameters, const ClipOptions& options = {});
  /// Takes a measured norm in, for a caller that clips by itself with limit().
  void remember(double norm);

  double limit() const noexcept;
  /// The norms that are remembered, oldest first; and back, for a run that is resumed.
  const std::vector<double>& history() const noexcept { return history_; }
  void restore(std::span<const double> history);

 private:
  AdaptiveClipOptions options_;
  detect::Baseline usual_;
  std::vector<double> history_;
};

}  // namespace firstfault
