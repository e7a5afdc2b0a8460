// By how much the gradient grows or shrinks from time step to time step of a recurrent layer, on its way back.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "firstfault/live/intercept/op_traits.h"

namespace torch::autograd {
struct Node;
}

namespace firstfault::watch {

/// Of one loop: gradients of what goes into a nonlinearity, fitted over the time steps: rms ~ lambda^(steps back).
struct GrowthInTime {
  std::int32_t module = -1;
  const intercept::OpTraits* op = nullptr;
  const c10::TensorImpl* weight = nullptr;  ///< compared, never followed
  double lambda = 1;                        ///< factor per time step, walking backward
  std::int64_t steps = 0;                   ///< from the first one that the gradient reached to the last
  double first = 0, last = 0;               ///< rms at these, of at most 256 elements
  double zeros = 0;                         ///< share of the time steps where it is exactly 0: left out of the fit
  double fit = 0;                           ///< share of the variance of log(rms) that lambda explains, 0 to 1
};

/// Finds loops by their nonlinearities: calls of one op in one module behind one weight, each of which depends on those
/// before. Where a time step holds several (the gates of an LSTM or GRU) the one through which most of the gradient
/// comes speaks for the loop. Not thread-safe.
class GrowthsInTime {
 public:
  static constexpr std::size_t kLeastSteps = 8;
  static constexpr std::size_t kMostCalls = 1 << 14;  ///< in a forward; later ones are not looked at
  static constexpr std::size_t kMostLoops = 1024;     ///< in a run, likewise

  /// A nonlinearity in the forward gave `output`, made by `node`. True: it has been a loop for kLeastSteps calls.
  bool called(std::int32_t module, const intercept::OpTraits& op, const at::Tensor& output,
              const torch::autograd::Node& node);
  /// backward() was called: a forward after it begins anew.
  void begin_backward() { backward_begun_ = true; }
  /// What the node of that number gave as the gradient of its input.
  void came_back(std::int64_t sequence, std::uint64_t thread, const at::Tensor& gradient);
  /// Of the forward and backward passes since the last call, the last of each loop.
  std::vector<GrowthInTime> take();

 private:
  using Key = std::tuple<std::int32_t, const intercept::OpTraits*, const c10::TensorImpl*>;
  struct Group {
    Key key;
    std::vector<double> rms;  ///< by call; NaN: the gradient has not come there
    std::int64_t first_sequence = 0, last_sequence = 0;
    bool chained = false;
  };
  struct Call {
    std::size_t group = 0, number = 0;
    std::uint64_t thread = 0;
  };

  std::size_t group_of(const Key& key);
  bool follows(const torch::autograd::Node& node, std::size_t group) const;
  const Call* find(std::int64_t sequence, std::uint64_t thread) const;
  bool is_loop(const Group& group) const;
  std::vector<std::vector<std::size_t>> loops() const;
  void settle();

  std::vector<Group> groups_;
  std::map<Key, std::size_t> index_;
  std::unordered_map<std::int64_t, Call> calls_;  ///< by sequence number
  bool backward_begun_ = false;
  std::map<Key, Key> speaks_;  ///< for the loop whose first nonlinearity this is
  std::map<Key, GrowthInTime> found_;
};

}  // namespace firstfault::watch
