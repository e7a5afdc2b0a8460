// Autograd node -> the forward op that made it, by sequence number and forward thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "firstfault/live/intercept/op_traits.h"
#include "firstfault/live/intercept/place.h"

namespace firstfault::trace {

struct ForwardOp {
  std::int64_t sequence = -1;
  std::uint64_t thread = 0;
  const intercept::OpTraits* op = nullptr;
  intercept::PlaceId place = intercept::kNowhere;
  std::int32_t module = -1;
  std::int32_t after = -1;
  std::int32_t name = -1;  ///< custom function, or the node around an op of a backward's own: index of its name
  std::int32_t bad_node = -1;
  std::int64_t bad_step = -1;
};

/// A ring: numbers are given per thread from 0 on, so the thread is part of the key. Older entries are overwritten.
class ForwardOps {
 public:
  static constexpr std::size_t kSize = 1 << 16;

  ForwardOps() : ring_(kSize) {}

  ForwardOp& slot(std::int64_t sequence, std::uint64_t thread) {
    return ring_[(static_cast<std::uint64_t>(sequence) + thread * 0x9E3779B1ull) & (kSize - 1)];
  }
  /// nullptr: never seen, or overwritten since.
  ForwardOp* find(std::int64_t sequence, std::uint64_t thread) {
    if (sequence < 0) return nullptr;
    ForwardOp& entry = slot(sequence, thread);
    return entry.sequence == sequence && entry.thread == thread ? &entry : nullptr;
  }

  /// Index of a name, interned; bounded.
  std::int32_t intern(const std::string& name);
  const std::string& name(std::int32_t index) const { return names_[index]; }

 private:
  static constexpr std::size_t kMaxNames = 4096;
  std::vector<ForwardOp> ring_;
  std::vector<std::string> names_;
};

}  // namespace firstfault::trace
