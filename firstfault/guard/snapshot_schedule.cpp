#include "firstfault/guard/snapshot_schedule.h"

#include "firstfault/guard/limits.h"

namespace firstfault::guard {
namespace {

std::size_t most_crowded(std::span<const HeldSnapshot> held, std::int64_t now) {
  std::size_t drop = 0;
  double least = 0;
  for (std::size_t i = 1; i + 1 < held.size(); ++i) {
    // The factor between the ages of its neighbours: what the gap would be without it.
    const double gap =
        static_cast<double>(now - held[i - 1].step + 1) / static_cast<double>(now - held[i + 1].step + 1);
    if (drop == 0 || gap < least) {
      drop = i;
      least = gap;
    }
  }
  return drop;
}

}  // namespace

std::optional<std::size_t> snapshot_to_drop(std::span<const HeldSnapshot> held, std::int64_t now,
                                            std::int64_t most_bytes) {
  std::int64_t bytes = 0;
  for (const HeldSnapshot& one : held) bytes += one.bytes;
  if (held.empty() || (held.size() <= kMostSnapshots && bytes <= most_bytes)) return {};
  return most_crowded(held, now);
}

}  // namespace firstfault::guard
