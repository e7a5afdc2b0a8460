#include "firstfault/live/watch/growth_in_time.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include "firstfault/live/measure/statistics.h"

namespace firstfault::watch {
namespace {

using torch::autograd::AccumulateGrad;
using torch::autograd::Node;

/// The nodes behind one, nearest first. Reads edges only: nothing is copied, no reference taken.
class Behind {
 public:
  explicit Behind(const Node& node) { queue_[size_++] = {&node, 0}; }

  struct Reached {
    const Node* node;
    int depth;
  };
  std::optional<Reached> next() {
    if (at_ == size_) return {};
    const Reached reached = queue_[at_++];
    for (const auto& edge : reached.node->next_edges()) add({edge.function.get(), reached.depth + 1});
    return reached;
  }

 private:
  static constexpr std::size_t kMost = 96;  // an LSTM's cell has about 40 between two time steps

  void add(Reached fresh) {
    const auto end = queue_.begin() + static_cast<std::ptrdiff_t>(size_);
    const bool known = std::any_of(queue_.begin(), end, [&](const Reached& r) { return r.node == fresh.node; });
    if (fresh.node && !known && size_ < kMost) queue_[size_++] = fresh;
  }

  std::array<Reached, kMost> queue_{};
  std::size_t size_ = 0, at_ = 0;
};

// A subclass may answer in Python, for which this is no place.
bool has_plain_sizes(const at::Tensor& tensor) {
  return !tensor.unsafeGetTensorImpl()->is_python_dispatch() && !tensor.is_nested();
}

// The matrix that the state went through: the nearest one, or beside it or just behind (past a gate) one that reads as
// many units as the nonlinearity gives.
const c10::TensorImpl* weight_behind(const Node& node, std::int64_t units) {
  const c10::TensorImpl* best = nullptr;
  int found_at = std::numeric_limits<int>::max() - 1, best_at = -1;
  Behind behind(node);
  while (const auto reached = behind.next()) {
    if (reached->depth > found_at + 1) break;
    if (!reached->node->next_edges().empty()) continue;
    const auto* leaf = dynamic_cast<const AccumulateGrad*>(reached->node);
    if (!leaf || !leaf->variable.defined() || !has_plain_sizes(leaf->variable) || leaf->variable.dim() < 2) continue;
    found_at = std::min(found_at, reached->depth);
    const bool fits = leaf->variable.size(1) == units;
    if (best && (!fits || best_at == reached->depth)) continue;
    best = leaf->variable.unsafeGetTensorImpl();
    if (fits) best_at = reached->depth;
  }
  return best;
}

double rms_of(const at::Tensor& tensor) {
  float some[256];
  const auto count = measure::sample_into(tensor, some);
  double squares = 0;
  std::size_t finite = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (std::isnan(some[i])) continue;
    squares += static_cast<double>(some[i]) * some[i];
    ++finite;
  }
  return finite > 0 ? std::sqrt(squares / static_cast<double>(finite)) : std::numeric_limits<double>::quiet_NaN();
}

struct Sums {
  double n = 0, t = 0, y = 0, tt = 0, ty = 0, yy = 0;
  void add(double time, double value) {
    n += 1, t += time, y += value, tt += time * time, ty += time * value, yy += value * value;
  }
};

// Least squares of log(rms) against the time step, `calls` of which make one.
std::optional<GrowthInTime> fitted(const std::vector<double>& rms, std::size_t calls) {
  Sums sums;
  GrowthInTime growth;
  std::size_t reached = 0, first = 0, last = 0;
  for (std::size_t i = 0; i < rms.size(); ++i) {
    if (std::isnan(rms[i])) continue;
    if (reached++ == 0) first = i;
    last = i;
    if (rms[i] == 0) continue;
    sums.add(static_cast<double>(i / calls), std::log(rms[i]));
  }
  constexpr double kLeastPoints = 4;
  growth.steps = static_cast<std::int64_t>(last / calls - first / calls + 1);
  if (growth.steps < static_cast<std::int64_t>(GrowthsInTime::kLeastSteps) || sums.n < kLeastPoints) return {};
  const double tt = sums.tt - sums.t * sums.t / sums.n;
  const double ty = sums.ty - sums.t * sums.y / sums.n;
  const double yy = sums.yy - sums.y * sums.y / sums.n;
  if (!(tt > 0)) return {};
  growth.lambda = std::exp(-ty / tt);
  growth.fit = yy > 0 ? std::min(1.0, ty * ty / (tt * yy)) : 1;
  growth.first = rms[first];
  growth.last = rms[last];
  growth.zeros = 1 - sums.n / static_cast<double>(reached);
  return growth;
}

}  // namespace

std::size_t GrowthsInTime::group_of(const Key& key) {
  const auto [known, fresh] = index_.try_emplace(key, groups_.size());
  if (fresh) groups_.push_back({key, {}, 0, 0, false});
  return known->second;
}

const GrowthsInTime::Call* GrowthsInTime::find(std::int64_t sequence, std::uint64_t thread) const {
  const auto known = calls_.find(sequence);
  return known != calls_.end() && known->second.thread == thread ? &known->second : nullptr;
}

bool GrowthsInTime::follows(const Node& node, std::size_t group) const {
  Behind behind(node);
  behind.next();
  while (const auto reached = behind.next()) {
    const Call* call = find(static_cast<std::int64_t>(reached->node->sequence_nr()), reached->node->thread_id());
    if (call && call->group == group) return true;
  }
  return false;
}

bool GrowthsInTime::called(std::int32_t module, const intercept::OpTraits& op, const at::Tensor& output,
                           const Node& node) {
  if (backward_begun_) settle();
  if (calls_.size() >= kMostCalls || !has_plain_sizes(output) || output.dim() == 0) return false;
  const auto* weight = weight_behind(node, output.size(-1));
  if (!weight) return false;
  const auto index = group_of({module, &op, weight});
  Group& group = groups_[index];
  constexpr std::size_t kAskUntil = 4;  // the first gates of a time step do not depend on each other
  const auto number = group.rms.size();
  if (!group.chained && number > 0 && number < kAskUntil) group.chained = follows(node, index);
  const auto sequence = static_cast<std::int64_t>(node.sequence_nr());
  if (number == 0) group.first_sequence = sequence;
  group.last_sequence = sequence;
  group.rms.push_back(std::numeric_limits<double>::quiet_NaN());
  calls_.insert_or_assign(sequence, Call{index, number, node.thread_id()});
  return is_loop(group);
}

void GrowthsInTime::came_back(std::int64_t sequence, std::uint64_t thread, const at::Tensor& gradient) {
  const Call* call = find(sequence, thread);
  if (!call || !is_loop(groups_[call->group])) return;
  groups_[call->group].rms[call->number] = rms_of(gradient);
}

bool GrowthsInTime::is_loop(const Group& group) const { return group.chained && group.rms.size() >= kLeastSteps; }

// Groups of one module that run in turns.
std::vector<std::vector<std::size_t>> GrowthsInTime::loops() const {
  std::vector<std::vector<std::size_t>> loops;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    const Group& one = groups_[i];
    if (!is_loop(one)) continue;
    const auto together = std::find_if(loops.begin(), loops.end(), [&](const std::vector<std::size_t>& loop) {
      const Group& other = groups_[loop.front()];
      return std::get<0>(other.key) == std::get<0>(one.key) && other.first_sequence < one.last_sequence &&
             one.first_sequence < other.last_sequence;
    });
    if (together == loops.end()) {
      loops.push_back({i});
    } else {
      together->push_back(i);
    }
  }
  return loops;
}

void GrowthsInTime::settle() {
  for (const auto& loop : loops()) {
    std::size_t steps = kMostCalls;
    for (const auto index : loop) steps = std::min(steps, groups_[index].rms.size());
    const auto known = speaks_.find(groups_[loop.front()].key);
    if (known == speaks_.end() && speaks_.size() >= kMostLoops) continue;
    std::optional<GrowthInTime> best;
    for (const auto index : loop) {
      const Group& group = groups_[index];
      if (known != speaks_.end() && known->second != group.key) continue;
      auto growth = fitted(group.rms, group.rms.size() % steps == 0 ? group.rms.size() / steps : 1);
      if (!growth || (best && best->lambda >= growth->lambda)) continue;
      std::tie(growth->module, growth->op, growth->weight) = group.key;
      best = growth;
    }
    if (!best) continue;
    speaks_.try_emplace(groups_[loop.front()].key, best->module, best->op, best->weight);
    found_.insert_or_assign(groups_[loop.front()].key, *best);
  }
  groups_.clear();
  index_.clear();
  calls_.clear();
  backward_begun_ = false;
}

std::vector<GrowthInTime> GrowthsInTime::take() {
  if (!groups_.empty()) settle();
  std::vector<GrowthInTime> taken;
  for (const auto& [key, growth] : found_) taken.push_back(growth);
  found_.clear();
  return taken;
}

}  // namespace firstfault::watch
