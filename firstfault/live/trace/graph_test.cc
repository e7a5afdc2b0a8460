#include "firstfault/live/trace/graph.h"

#include <gtest/gtest.h>

namespace firstfault::trace {
namespace {

using Ids = std::vector<std::int32_t>;

std::int32_t origin(Graph& graph) {
  Node node;
  node.origin = true;
  return graph.add(std::move(node));
}

std::int32_t reads(Graph& graph, Ids causes, bool intended = false) {
  Node node;
  for (const auto cause : causes) node.inputs.push_back({cause, kNaN, intended, 0, -1});
  return graph.add(std::move(node));
}

TEST(Graph, FindsEveryIndependentOriginEarliestFirst) {
  Graph graph;
  const auto a = origin(graph), b = origin(graph);
  const auto left = reads(graph, {b}), right = reads(graph, {a, left});
  EXPECT_EQ(graph.origins_of(right), (Ids{a, b}));
}

TEST(Graph, DoesNotFollowAnIntendedInf) {
  Graph graph;
  const auto mask = origin(graph);
  const auto own = reads(graph, {mask}, /*intended=*/true);
  EXPECT_EQ(graph.origins_of(own), (Ids{own}));
}

TEST(Graph, ABackwardOriginLeadsOnToTheBadOutputOfItsForwardOp) {
  Graph graph;
  const auto forward = origin(graph), backward = origin(graph);
  graph[backward].forward_node = forward;
  EXPECT_EQ(graph.origins_of(backward), (Ids{forward}));
  EXPECT_EQ(graph.path(forward, backward), (Ids{forward, backward}));
}

TEST(Graph, GivesTheShortestPathFromOriginToTarget) {
  Graph graph;
  const auto a = origin(graph);
  const auto detour = reads(graph, {reads(graph, {a})});
  const auto target = reads(graph, {detour, a});
  EXPECT_EQ(graph.path(a, target), (Ids{a, target}));
}

TEST(Graph, IdsOfAnOlderGraphAreVoidInTheNext) {
  Graph first;
  const auto old = origin(first);
  Graph second(first.end());
  const auto fresh = reads(second, {old});
  EXPECT_FALSE(second.has(old));
  EXPECT_EQ(second.origins_of(fresh), (Ids{fresh}));
}

}  // namespace
}  // namespace firstfault::trace
