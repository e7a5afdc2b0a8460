// Reuses the place of an op while the program repeats itself, so that stacks and module names cost nothing in a loop.
#pragma once

#include <cstdint>
#include <vector>

#include "firstfault/live/intercept/place.h"

namespace firstfault::intercept {

/// One per thread. The ops of a program form a graph: a node is (op, parameter it reads, place), an edge leads to the
/// op that came next. While exactly one successor of the current node fits the op that comes, its place is taken over
/// and the stack is not walked. A prediction is checked at its 1st, 2nd, 4th, 8th … use; where two successors fit, the
/// stack is walked every time, until one of them has come kForget times in a row.
class PlacePredictor {
 public:
  struct Key {
    const void* op = nullptr;
    const void* parameter = nullptr;  ///< identity of the parameters read, so that twin modules are told apart
    bool operator==(const Key&) const = default;
  };

  /// Steps along the edge for `key`. kMustWalk: the caller walks the stack and calls learn(). Otherwise the place.
  static constexpr PlaceId kMustWalk = -2;
  PlaceId predict(const Key& key);
  /// The place found by walking, for the op of the last predict().
  void learn(const Key& key, PlaceId place);
  /// Forgets everything, for instance when the meaning of place ids changes.
  void clear();
  std::size_t size() const noexcept { return nodes_.size(); }

 private:
  struct Node {
    Key key;
    PlaceId place;
    std::vector<std::int32_t> next;
    std::uint32_t uses = 0;
    std::uint32_t streak = 0;  ///< walks that led here since another successor of the same key came
  };
  static constexpr std::uint32_t kForget = 64;
  static constexpr std::size_t kMaxNodes = 1 << 15;

  void add_edge(std::int32_t from, std::int32_t to);
  std::int32_t find_or_add(const Key& key, PlaceId place);

  std::vector<Node> nodes_;
  std::vector<std::vector<std::int32_t>> buckets_ = std::vector<std::vector<std::int32_t>>(1024);
  std::int32_t current_ = -1;
};

}  // namespace firstfault::intercept
