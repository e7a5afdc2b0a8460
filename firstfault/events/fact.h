// Something seen about the program that no series of numbers shows: shapes that broadcast, a parameter left out.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace firstfault {

enum class FactKind : std::uint8_t {
  loss_op,         ///< op that made the loss; numbers: classes (0: none), elements, factor (root of backward() over
                   ///< what the op gave, without a loss scale: 0.25 for loss / 4)
  loss_broadcast,  ///< prediction and target broadcast against each other; detail: "[100, 1] and [100]"
  raw_scores,      ///< nll_loss was given values that are no log-probabilities; numbers: max, row_sum
  low_precision,   ///< a float16 or bfloat16 value in forward or backward; detail: dtype
  underflow,       ///< float16 gradients with exact zeros; numbers: zeros (fraction), scale (NaN: none)
  not_held,        ///< parameters with gradients that no optimizer holds; detail: names; numbers: count
  foreign,         ///< tensors that an optimizer holds and no watched model; numbers: count
  constant_op,     ///< an op whose derivative is 0 everywhere: softmax over one element, round, sign; detail: op
  clipped,         ///< gradients were scaled between backward and step; numbers: norm, coefficient
  clipped_scaled,  ///< the same while they were still multiplied by a loss scale; numbers: scale
  data_invalid,    ///< values that the op cannot take; detail
  attention,  ///< softmax over keys; numbers: logit_max, entropy (nats), keys, and both as they were first (…_first)
  expert_share,    ///< router: numbers: share (of the commonest expert), experts
  compiled,        ///< ops of a region compiled by torch.compile were not seen; detail: module
  experiment,      ///< a faulty step run again with one thing changed; read by experiments_of()
  growth_in_time,  ///< gradient of a recurrent layer, walking back in time; detail: the layer's weight; numbers: lambda
                   ///< (factor per time step; …_first, …_most: of the first step and the largest), steps (of time),
                   ///< first, last (rms at these), zeros (share of the time steps without), fit (R2, 0 to 1)
};

constexpr std::string_view name_of(FactKind kind) noexcept {
  constexpr std::string_view names[] = {"loss_op",      "loss_broadcast", "raw_scores",   "low_precision",
                                        "underflow",    "not_held",       "foreign",      "constant_op",
                                        "clipped",      "clipped_scaled", "data_invalid", "attention",
                                        "expert_share", "compiled",       "experiment",   "growth_in_time"};
  return names[static_cast<int>(kind)];
}

/// One per (kind, module, detail): later observations count up and replace the numbers.
struct Fact {
  FactKind kind = FactKind::loss_op;
  std::string module;  ///< "" for none
  std::string op;      ///< "" for none
  std::string detail;
  std::int64_t first_step = 0;
  std::int64_t last_step = 0;
  std::int64_t count = 1;                 ///< steps in which it was seen
  std::map<std::string, double> numbers;  ///< of the last observation
  std::string file;                       ///< where it was seen first, "" where not known
  int line = 0;
};

}  // namespace firstfault
