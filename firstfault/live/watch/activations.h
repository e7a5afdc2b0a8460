// Health of the outputs of nonlinearities: flat ends, silent channels, spread between samples.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "firstfault/events/health.h"
#include "firstfault/live/intercept/op_traits.h"
#include "firstfault/live/measure/statistics.h"

namespace firstfault::watch {

/// Where an output counts as flat. tanh 0.97 and sigmoid 0.03, 0.97: pre-activations beyond about 2.1 and 3.5, where
/// the derivative is below 0.06 and 0.03 of 1 (DeepDiagnosis and SageMaker Debugger ask for +-5 and +-9.5 before the
/// op).
inline constexpr float kTanhFlat = 0.97f;
inline constexpr float kSigmoidFlat = 0.03f;
inline constexpr float kSoftmaxFlat = 0.99f;  ///< the largest of a row

/// Samples at most 4,096 elements (softmax: 8 rows) of an output a step, others each time. Not thread-safe.
class Activations {
 public:
  /// `site` identifies the place over the steps. `softmax_dim` is read for softmax only.
  Health measure(std::int32_t site, intercept::Nonlinearity family, const at::Tensor& output, std::int64_t softmax_dim);

 private:
  struct Channels {
    std::vector<std::int64_t> alive;  ///< number of the measurement in which it last gave something other than 0
    std::int64_t measurements = 0;
  };
  float dead(Channels& channels, const measure::Grid& grid) const;

  std::unordered_map<std::int32_t, Channels> channels_;
  measure::Grid grid_;
};

/// The dim whose places are units of a layer: 1 for images, else the last.
std::int64_t channel_dim(const at::Tensor& tensor);

/// rms, absmax, mean, zeros, varies of a grid.
Health health_of(const measure::Grid& grid);

/// 0 to 1: the share of rows whose largest element stands at the commonest place; NaN for an empty grid.
float share_of_commonest(const measure::Grid& grid);

}  // namespace firstfault::watch
