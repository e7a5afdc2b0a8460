// Gradients, parameters and updates of what the optimizers hold, measured around a step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "firstfault/events/step_row.h"
#include "firstfault/live/trace/tensor_names.h"

namespace firstfault::watch {

/// Samples of this many elements stand for a parameter where the whole would cost too much.
inline constexpr std::size_t kSample = 256;

/// What a caller knows about one parameter group at the moment of a step.
struct GroupNumbers {
  double lr = StepRow::kUnknown;
  bool has_lr = false;                     ///< a NaN of its own is no unknown one
  double eps = StepRow::kUnknown;          ///< as the dtype of the state holds it
  double state_steps = StepRow::kUnknown;  ///< smallest `step` in the state of its parameters, 0: no state
  std::vector<at::Tensor> second_moments;  ///< exp_avg_sq of a few of its parameters
};

/// One that an optimizer holds.
struct HeldTensor {
  at::Tensor tensor;
  std::int32_t optimizer = 0;
};

struct Measured {
  std::int32_t parameter = 0;  ///< index into Parameters::all()
  Health gradient, parameter_health;
};

struct StepSums {
  double gradient_squares = 0;
  double update_squares = 0, parameter_squares = 0;
  bool bad_gradient = false;
};

/// Not thread-safe. Keeps the tensors alive, and 2 * kSample floats for each parameter.
class Parameters {
 public:
  struct Tracked {
    at::Tensor tensor;
    std::string name;
    std::int32_t module = -1;
    std::int32_t optimizer = -1;  ///< that holds it; -1: none is known to
    bool left_over = false;       ///< its gradient was not zero when this step's first backward began
    std::vector<float> before;    ///< sample of the values before the step
    std::vector<float> gradient;  ///< sample of the last step's gradient
  };

  void set_names(const std::vector<trace::NamedTensor>& tensors);
  /// Gives how many of them are not watched, where anything is; they are followed without a name of the model's.
  std::size_t hold(const std::vector<HeldTensor>& held);
  /// Shares its memory with the gradient of one of them.
  bool has_gradient(const at::Tensor& tensor) const;
  const std::vector<Tracked>& all() const noexcept { return tracked_; }

  /// Before the first backward of a step: which gradients are there already?
  void look_for_left_over();
  /// Parameters that get gradients though no optimizer holds them; empty while no optimizer is known.
  std::vector<std::string> not_held() const;
  bool left_over(std::int32_t optimizer) const;
  void end_step();

  void before_step(std::int32_t optimizer);
  /// `scan`: parameters are looked at for NaN and Inf whole.
  std::vector<Measured> after_step(std::int32_t optimizer, bool scan, StepSums& sums);

 private:
  bool belongs(const Tracked& tracked, std::int32_t optimizer) const;
  Health gradient_health(Tracked& tracked, StepSums& sums);
  Health parameter_health(Tracked& tracked, bool scan, StepSums& sums);

  std::vector<Tracked> tracked_;
  std::vector<float> scratch_;
  bool any_held_ = false;
};

}  // namespace firstfault::watch
