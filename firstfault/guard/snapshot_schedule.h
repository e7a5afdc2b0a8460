// Which snapshots are kept: the newest, and older ones further and further apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace firstfault::guard {

struct HeldSnapshot {
  std::int64_t step = 0;
  std::int64_t bytes = 0;
};

/// Of snapshots in the order of their steps, the one to give up next so that at most kMostSnapshots of at most
/// `most_bytes` together are held; nullopt where they are. Ages of the others grow geometrically: one from before the
/// onset of a slow divergence survives. The oldest goes only where there are but two, the newest only where it is alone
/// and larger than the cap.
std::optional<std::size_t> snapshot_to_drop(std::span<const HeldSnapshot> held, std::int64_t now,
                                            std::int64_t most_bytes);

}  // namespace firstfault::guard
