// The graph of ops that follow each other.
#include "firstfault/live/intercept/place_predictor.h"

#include <algorithm>
#include <bit>

namespace firstfault::intercept {

PlaceId PlacePredictor::predict(const Key& key) {
  if (current_ < 0) return kMustWalk;
  std::int32_t found = -1;
  for (const auto id : nodes_[current_].next) {
    if (nodes_[id].key != key) continue;
    if (found >= 0) return kMustWalk;
    found = id;
  }
  if (found < 0) return kMustWalk;
  Node& node = nodes_[found];
  if (std::has_single_bit(++node.uses)) return kMustWalk;
  current_ = found;
  return node.place;
}

void PlacePredictor::learn(const Key& key, PlaceId place) {
  if (nodes_.size() >= kMaxNodes) clear();
  const std::int32_t from = current_;
  current_ = find_or_add(key, place);
  if (from >= 0) add_edge(from, current_);
}

void PlacePredictor::add_edge(std::int32_t from, std::int32_t to) {
  auto& next = nodes_[from].next;
  const auto rivals = [&](std::int32_t id) { return id != to && nodes_[id].key == nodes_[to].key; };
  if (std::find(next.begin(), next.end(), to) == next.end()) next.push_back(to);
  if (++nodes_[to].streak >= kForget) next.erase(std::remove_if(next.begin(), next.end(), rivals), next.end());
  for (const auto id : next) {
    if (rivals(id)) nodes_[id].streak = 0;
  }
}

void PlacePredictor::clear() {
  nodes_.clear();
  for (auto& bucket : buckets_) bucket.clear();
  current_ = -1;
}

std::int32_t PlacePredictor::find_or_add(const Key& key, PlaceId place) {
  const auto mix = reinterpret_cast<std::uintptr_t>(key.op) ^ reinterpret_cast<std::uintptr_t>(key.parameter) >> 4 ^
                   static_cast<std::uintptr_t>(place) << 7;
  auto& bucket = buckets_[(mix * 0x9E3779B97F4A7C15ull >> 40) % buckets_.size()];
  for (const auto id : bucket) {
    if (nodes_[id].place == place && nodes_[id].key == key) return id;
  }
  const auto id = static_cast<std::int32_t>(nodes_.size());
  nodes_.push_back({key, place, {}});
  bucket.push_back(id);
  return id;
}

}  // namespace firstfault::intercept
