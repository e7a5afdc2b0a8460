#include "firstfault/record/fact_table.h"

#include <algorithm>

namespace firstfault::record {

std::int64_t FactTable::find(const Fact& fact) const {
  const auto found = index_.find(key(fact));
  return found == index_.end() ? -1 : found->second;
}

std::int64_t FactTable::merge(const Fact& fact) {
  const auto [entry, is_new] = index_.try_emplace(key(fact), static_cast<std::int64_t>(facts_.size()));
  if (is_new) {
    facts_.push_back(fact);
    return entry->second;
  }
  Fact& known = facts_[static_cast<std::size_t>(entry->second)];
  known.count += fact.count;
  known.last_step = std::max(known.last_step, fact.last_step);
  known.numbers = fact.numbers;
  return entry->second;
}

}  // namespace firstfault::record
