// firstfault._live.Watch as other files of the module see it.
#pragma once

#include <string>
#include <utility>

#include "firstfault/live/watch.h"
#include "python/src/live_bound.h"

namespace firstfault::python {

struct BoundWatch : Bound<Watch> {
  BoundWatch(std::string level, double vanishing, double exploding, std::string run_file)
      : Bound(WatchOptions{std::move(level), vanishing, exploding, std::move(run_file)}, /*stacks=*/true) {}
};

}  // namespace firstfault::python
