// Facts of a run, one per kind, module, op and detail.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "firstfault/events/fact.h"

namespace firstfault::record {

/// No lock: one thread at a time.
class FactTable {
 public:
  /// Index of the fact with the same key, or -1.
  std::int64_t find(const Fact& fact) const;
  /// Adds it, or counts up the one with the same key, replaces its numbers, and keeps its first step and place.
  /// Returns its index, which never changes.
  std::int64_t merge(const Fact& fact);

  const std::vector<Fact>& facts() const noexcept { return facts_; }

 private:
  using Key = std::tuple<FactKind, std::string, std::string, std::string>;
  static Key key(const Fact& fact) { return {fact.kind, fact.module, fact.op, fact.detail}; }

  std::vector<Fact> facts_;  ///< in the order in which they were first seen
  std::map<Key, std::int64_t> index_;
};

}  // namespace firstfault::record
