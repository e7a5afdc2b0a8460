// Where in the program an op was called: module and call stack, as a small number that callbacks can copy freely.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "firstfault/events/origin.h"

namespace firstfault::intercept {

/// Index into what a Places has interned; -1: unknown. Ids are never reused while the Places lives.
using PlaceId = std::int32_t;
inline constexpr PlaceId kNowhere = -1;

class Places {
 public:
  virtual ~Places() = default;

  /// The place of the op that is being called on this thread. `owner` is the module (index into the names given to
  /// watch) of a parameter that the op reads, -1 if none. `with_stack`: with the call stack also where none is kept as
  /// a rule. May take the interpreter's lock: never call it with a lock held. Any thread.
  virtual PlaceId here(std::int32_t owner, bool with_stack) = 0;
  /// Module index of a place, -1 if it lies outside every watched module. Any thread; never takes the interpreter's
  /// lock.
  virtual std::int32_t module_of(PlaceId place) const = 0;
  /// Frames of the user's program, innermost first. Slow; never inside a callback.
  virtual std::vector<SourceFrame> frames_of(PlaceId place) = 0;
};

}  // namespace firstfault::intercept
