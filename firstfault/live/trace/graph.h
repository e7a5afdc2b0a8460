// The graph of bad values: a node per op output that held one, an edge to each bad value that the op read.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "firstfault/events/origin.h"
#include "firstfault/live/intercept/op_traits.h"
#include "firstfault/live/intercept/place.h"
#include "firstfault/live/trace/storage_pin.h"

namespace firstfault::trace {

struct Edge {
  std::int32_t node = -1;  ///< -1: memory inside an enclosing kernel, or a cap was reached
  std::uint8_t bits = 0;
  bool intended = false;
  std::int16_t argument = 0;
  std::int16_t item = -1;
};

/// An op that read the value and gave only finite ones.
struct Absorber {
  const intercept::OpTraits* op = nullptr;
  bool selects = false;
  bool requires_grad = false;
};

struct Node {
  enum class Kind : std::uint8_t { op, outside, unwritten };

  Kind kind = Kind::op;
  Phase phase = Phase::forward;
  std::uint8_t bits = 0;
  bool intended = false;
  bool origin = false;
  bool requires_grad = false;
  bool reads_gradient = false;       ///< of a watched parameter
  bool compiled = false;             ///< outside: it came out of a region of torch.compile
  bool is_number = false;            ///< outside: an Inf among the arguments of the call, x * float("inf")
  bool nested = false;               ///< made inside another op that is judged by its own outputs
  bool writes_leaf = false;          ///< an optimizer's write to a tensor that requires a gradient
  bool noted = false;                ///< as an origin that reached none so far
  bool reported = false;             ///< as an origin that reached a sink
  std::int32_t carried_from = -1;    ///< collapsed to its origin; id of the value's node in the step before
  std::int32_t carried_origin = -1;  ///< and that of its origin there
  std::int64_t step = 0;
  std::uint64_t number = 0;  ///< of the record
  std::int64_t around = -1;  ///< backward: sequence number of the node around it
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  std::int32_t item = -1;          ///< which tensor of a list output, -1: no list
  std::int32_t after = -1;         ///< module that ran last before it, for ops outside every module
  std::int32_t reader = -1;        ///< node of the first op that read this value
  std::int32_t forward_node = -1;  ///< backward: the bad output of the op's own forward
  std::int32_t module = -1;
  intercept::PlaceId place = intercept::kNowhere;
  const intercept::OpTraits* op = nullptr;     ///< autograd level
  const intercept::OpTraits* inner = nullptr;  ///< the dispatched op that first showed the value
  const intercept::OpTraits* outer = nullptr;  ///< what the program called
  std::string backward_node;                   ///< "SqrtBackward0", "" outside the backward
  std::string forward_op;
  StoragePin storage;  ///< where the value sits
  std::vector<std::int64_t> shape;
  std::vector<Edge> inputs;
  std::vector<Absorber> absorbers;
  std::optional<std::int64_t> sample;
  std::shared_ptr<const OriginEvidence> evidence;  ///< nullptr: none kept
};

/// Ids go on over the steps, so that one which an older step gave out is found to be void, not taken for another.
class Graph {
 public:
  /// First kMaxNodes of a step are kept: origins come first.
  static constexpr std::size_t kMaxNodes = 20000;
  static constexpr std::size_t kMaxAbsorbers = 8;

  explicit Graph(std::int32_t first_id = 0) : first_(first_id) {}

  bool full() const noexcept { return nodes_.size() >= kMaxNodes; }
  std::size_t size() const noexcept { return nodes_.size(); }
  bool empty() const noexcept { return nodes_.empty(); }
  std::int32_t first() const noexcept { return first_; }
  std::int32_t end() const noexcept { return first_ + static_cast<std::int32_t>(nodes_.size()); }
  bool has(std::int32_t id) const noexcept { return id >= first_ && id < end(); }
  Node& operator[](std::int32_t id) { return nodes_[id - first_]; }
  const Node& operator[](std::int32_t id) const { return nodes_[id - first_]; }
  std::int32_t add(Node node);

  /// Origins from which the value of `id` comes, earliest first. A backward origin whose forward op had a bad output
  /// itself leads on to that. Of an Inf that is meant: the op that wrote it.
  std::vector<std::int32_t> origins_of(std::int32_t id) const;
  /// Shortest way from `origin` to `id`, both included; {id} where none is known.
  std::vector<std::int32_t> path(std::int32_t origin, std::int32_t id) const;

 private:
  template <class Visit>
  void for_each_cause(const Node& node, bool meant, Visit&& visit) const;

  std::int32_t first_;
  std::vector<Node> nodes_;
};

}  // namespace firstfault::trace
