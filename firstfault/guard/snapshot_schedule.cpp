#include "firstfault/guard/snapshot_schedule.h"

namespace firstfault::guard {

std::size_t snapshot_to_drop(std::span<const std::int64_t> steps, std::int64_t now) {
  std::size_t drop = 0;
  double least = 0;
  for (std::size_t i = 1; i + 1 < steps.size(); ++i) {
    // The factor between the ages of its neighbours: what the gap would be without it.
    const double gap = static_cast<double>(now - steps[i - 1] + 1) / static_cast<double>(now - steps[i + 1] + 1);
    if (drop == 0 || gap < least) {
      drop = i;
      least = gap;
    }
  }
  return drop;
}

}  // namespace firstfault::guard
