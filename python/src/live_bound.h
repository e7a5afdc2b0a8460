// What Trace and Watch have in common for Python.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "firstfault/live/module_names.h"
#include "python/src/live_places.h"
#include "python/src/live_tensor.h"
#include "python/src/live_types.h"

namespace firstfault::python {

template <class Observer>
struct Bound {
  FramePlaces* places = nullptr;  ///< the observer owns them; this keeps a way to tell them about module objects
  std::unique_ptr<Observer> observer;
  std::int32_t watched = 0;

  template <class Options>
  Bound(Options options, bool stacks) {
    auto owned = std::make_unique<FramePlaces>(stacks);
    places = owned.get();
    observer = std::make_unique<Observer>(std::move(options), std::move(owned), /*start_now=*/false);
  }
  // Its end waits for callbacks of other threads, which may wait for the interpreter's lock.
  ~Bound() {
    const nanobind::gil_scoped_release unlocked;
    observer.reset();
  }
  Bound(const Bound&) = delete;
  Bound& operator=(const Bound&) = delete;

  /// `modules`: (module, path, type, number of parameters); `tensors`: (tensor, name, is a parameter, index of module).
  void watch(const nanobind::list& modules, const nanobind::list& tensors) {
    ModuleNames names;
    std::vector<PyObject*> objects;
    for (const nanobind::handle item : modules) {
      const auto tuple = nanobind::cast<nanobind::tuple>(item);
      objects.push_back(tuple[0].ptr());
      names.paths.push_back(nanobind::cast<std::string>(tuple[1]));
      names.modules.push_back(
          {names.paths.back(), nanobind::cast<std::string>(tuple[2]), nanobind::cast<std::int64_t>(tuple[3])});
    }
    for (const nanobind::handle item : tensors) {
      names.tensors.push_back(named_tensor(nanobind::cast<nanobind::tuple>(item)));
    }
    const auto count = static_cast<std::int32_t>(objects.size());
    {
      const nanobind::gil_scoped_release unlocked;
      observer->watch(std::move(names));
    }
    places->watch(objects, watched);
    watched += count;
  }
};

}  // namespace firstfault::python
