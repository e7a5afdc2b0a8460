// Winsorised: a norm beyond the limit is remembered as the limit.
#include "firstfault/live/guard/adaptive_clip.h"

#include <algorithm>
#include <cmath>

#include "firstfault/base/error.h"
#include "firstfault/base/numbers.h"
#include "firstfault/live/guard/gradients.h"

namespace firstfault {
namespace {

std::size_t places(const AdaptiveClipOptions& options) { return std::max(options.window, detect::Baseline::kEnough); }

}  // namespace

AdaptiveClip::AdaptiveClip(AdaptiveClipOptions options) : options_(options), usual_(options.window) {
  if (options.z > 0 && options.max_norm >= 0) return;
  throw Error("firstfault: AdaptiveClip: z is " + show_number(options.z) + " and max_norm " +
                  show_number(options.max_norm) + "; they take numbers above 0.",
              Error::Kind::bad_value);
}

double AdaptiveClip::limit() const noexcept {
  if (!usual_.ready()) return options_.max_norm;
  return std::min(options_.max_norm, usual_.median() * std::exp(options_.z * usual_.spread()));
}

void AdaptiveClip::remember(double norm) {
  const double kept = std::isfinite(norm) ? std::min(norm, limit()) : norm;
  if (!usual_.add(kept)) return;
  if (history_.size() == places(options_)) history_.erase(history_.begin());
  history_.push_back(kept);
}

ClipRecord AdaptiveClip::clip(at::TensorList parameters, const ClipOptions& options) {
  GradientNorm norm(guard::gradients_of(parameters), options);
  const double total = norm.total();
  auto record = norm.clip(limit(), total);
  if (!record.skipped) remember(total);
  return record;
}

void AdaptiveClip::restore(std::span<const double> history) {
  usual_ = detect::Baseline(options_.window);
  history_.clear();
  for (const double norm : history) {
    if (usual_.add(norm)) history_.push_back(norm);
  }
  while (history_.size() > places(options_)) history_.erase(history_.begin());
}

}  // namespace firstfault
