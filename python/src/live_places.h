// Places of a Python program: the module is read off the frames of nn.Module's call, the stack off all frames.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "firstfault/live/intercept/place.h"

namespace firstfault::python {

/// No hook is installed: a frame that runs nn.Module's call machinery holds the module as `self`. So module paths are
/// exact at the moment they are read, whatever the program does with hooks, exceptions, compilation or threads.
class FramePlaces final : public intercept::Places {
 public:
  /// `stacks` false: only modules are read. The interpreter's lock is held here and in watch().
  explicit FramePlaces(bool stacks);
  ~FramePlaces() override;

  /// Module objects by index, from `first` on. The caller keeps them alive.
  void watch(const std::vector<PyObject*>& modules, std::int32_t first);
  void unwatch() { modules_.clear(); }

  intercept::PlaceId here(std::int32_t owner, bool with_stack) override;
  std::int32_t module_of(intercept::PlaceId place) const override;
  std::vector<SourceFrame> frames_of(intercept::PlaceId place) override;

 private:
  struct Line {
    PyCodeObject* code;  // owned once interned
    int position;        // byte offset of the instruction; a line number before Python 3.11
    bool operator==(const Line&) const = default;
  };
  struct Place {
    std::int32_t module = -1;
    std::vector<Line> stack;
    bool operator==(const Place&) const = default;
  };
  static constexpr std::size_t kMaxPlaces = 1 << 16;
  static constexpr std::size_t kMaxFrames = 64;

  Place read_frames(bool stack) const;
  std::int32_t module_in(PyFrameObject* frame, PyCodeObject* code) const;
  intercept::PlaceId intern(Place place);

  const bool stacks_;
  std::vector<PyCodeObject*> module_calls_;  // code of Module._wrapped_call_impl and _call_impl
  std::vector<std::string> foreign_;         // folders whose frames are not the user's
  std::unordered_map<PyObject*, std::int32_t> modules_;
  std::unordered_multimap<std::size_t, intercept::PlaceId> by_hash_;

  mutable std::mutex mutex_;  // of places_ alone; the interpreter's lock is never taken while it is held
  std::vector<std::unique_ptr<Place>> places_;
};

}  // namespace firstfault::python
