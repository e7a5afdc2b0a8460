// firstfault._live.Watch as other files of the module see it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "firstfault/live/watch.h"
#include "python/src/live_places.h"

namespace firstfault::python {

// The watch owns the places; this keeps a way to tell them about module objects.
struct BoundWatch {
  FramePlaces* places;
  std::unique_ptr<Watch> watch;
  std::int32_t watched = 0;

  BoundWatch(std::string level, double vanishing, double exploding, std::string run_file) {
    auto owned = std::make_unique<FramePlaces>(/*stacks=*/true);
    places = owned.get();
    WatchOptions options{std::move(level), vanishing, exploding, std::move(run_file)};
    watch = std::make_unique<Watch>(std::move(options), std::move(owned), /*start_now=*/false);
  }
  // Closing waits for callbacks of other threads, which may wait for the interpreter's lock.
  ~BoundWatch() {
    const nanobind::gil_scoped_release unlocked;
    watch.reset();
  }
};

}  // namespace firstfault::python
