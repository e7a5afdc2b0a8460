// Walks from a bad value back to where it began.
#include "firstfault/live/trace/graph.h"

#include <algorithm>

namespace firstfault::trace {

std::int32_t Graph::add(Node node) {
  nodes_.push_back(std::move(node));
  return end() - 1;
}

template <class Visit>
void Graph::for_each_cause(const Node& node, bool meant, Visit&& visit) const {
  if (node.origin) {
    if (has(node.forward_node)) visit(node.forward_node);
    return;
  }
  for (const Edge& edge : node.inputs) {
    if (has(edge.node) && (meant || !edge.intended)) visit(edge.node);
  }
}

std::vector<std::int32_t> Graph::origins_of(std::int32_t id) const {
  std::vector<char> seen(nodes_.size());
  std::vector<std::int32_t> found, open{id};
  const bool meant = (*this)[id].intended;
  while (!open.empty()) {
    const auto at = open.back();
    open.pop_back();
    if (seen[at - first_]) continue;
    seen[at - first_] = 1;
    bool leads_on = false;
    for_each_cause((*this)[at], meant, [&](std::int32_t cause) {
      leads_on = true;
      open.push_back(cause);
    });
    if (!leads_on) found.push_back(at);
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<std::int32_t> Graph::path(std::int32_t origin, std::int32_t id) const {
  std::vector<std::int32_t> towards(nodes_.size(), -1);  // breadth first from the target
  std::vector<char> seen(nodes_.size());
  std::vector<std::int32_t> queue{id};
  seen[id - first_] = 1;
  for (std::size_t head = 0; head < queue.size() && !seen[origin - first_]; ++head) {
    for_each_cause((*this)[queue[head]], (*this)[id].intended, [&](std::int32_t cause) {
      if (seen[cause - first_]) return;
      seen[cause - first_] = 1;
      towards[cause - first_] = queue[head];
      queue.push_back(cause);
    });
  }
  if (!seen[origin - first_]) return {id};
  std::vector<std::int32_t> way;
  for (auto at = origin; at >= 0; at = towards[at - first_]) way.push_back(at);
  return way;
}

}  // namespace firstfault::trace
