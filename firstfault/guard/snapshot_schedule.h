// Which snapshots are kept: the newest, and older ones further and further apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace firstfault::guard {

/// Of snapshots made at these steps (ascending, at least one), which is given up so that the ages of the others grow
/// geometrically: one from before the onset of a slow divergence survives. Never the newest, and the oldest only where
/// there are but two.
std::size_t snapshot_to_drop(std::span<const std::int64_t> steps, std::int64_t now);

}  // namespace firstfault::guard
