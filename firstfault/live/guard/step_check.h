// What is looked at before an optimizer writes, and after it: losses, gradients, hyperparameters, results.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "firstfault/detect/baseline.h"
#include "firstfault/guard/hyperparameter.h"
#include "firstfault/guard/result_bound.h"
#include "firstfault/live/guard/adaptive_clip.h"
#include "firstfault/live/guard/clip.h"

namespace firstfault {

/// How gradients are clipped before an optimizer takes them. At most one is used, in this order.
struct GuardClip {
  double max_norm = 0;    ///< 0: not
  bool adaptive = false;  ///< by AdaptiveClip, with max_norm as its ceiling
  double adaptive_z = 3;
  double clip_value = 0;   ///< 0: not
  double clip_factor = 0;  ///< by unit; 0: not
  double norm_type = 2;
};

namespace guard {

enum class Kind : std::uint8_t {
  none,
  loss,            ///< not finite
  gradient,        ///< one is not finite
  hyperparameter,  ///< one is not finite, or an eps is 0 in the dtype that it is added to
  spike,           ///< the gradient norm is far above the usual, and the policy asks
  result,          ///< what the optimizer wrote is not finite
};

constexpr std::string_view name_of(Kind kind) noexcept {
  constexpr std::string_view names[] = {"none", "loss", "gradient", "hyperparameter", "spike", "result"};
  return names[static_cast<int>(kind)];
}

struct Finding {
  Kind kind = Kind::none;
  std::string reason;              ///< a sentence without a full stop: "gradient of 'fc.weight' holds 3 NaN of 64"
  std::vector<std::string> names;  ///< parameters, tensors of the state, hyperparameters
  bool faulty() const noexcept { return kind != Kind::none; }
};

struct Before {
  std::vector<at::Tensor> parameters;  ///< that this optimizer holds
  std::vector<std::string> names;      ///< of them
  std::vector<Hyperparameter> hyperparameters;
  double loss = 0;  ///< 0 where it is not known
  double lr = ClipRecord::kUnknown;
};

/// A tensor that an optimizer writes.
struct HeldTensor {
  at::Tensor tensor;
  Held what = Held::other;
  std::string name;
};

/// Of one optimizer. Not thread-safe.
class StepCheck {
 public:
  /// `spike_z` 0: no step is refused for its size; else the robust z of the gradient norm from which on it is.
  StepCheck(const GuardClip& clip, double spike_z);

  /// Looks at all that the optimizer is about to use, in one pass over the gradients, and clips them where nothing is
  /// wrong. `clip` is what was done to them then; its norm is known in any case where gradients are finite.
  struct Answer {
    Finding finding;
    std::optional<ClipRecord> clip;
  };
  Answer before(const Before& step);

  /// Right after before(): whether all that the step to come writes is sure to be finite. Then it needs neither to be
  /// read nor to be undone. `groups`: of the optimizer, whose step must be torch's own.
  bool is_bounded(const std::vector<UpdateNumbers>& groups);
  /// After the optimizer has written: reads all that it holds but for what is `known` to be finite.
  Finding after(const std::vector<HeldTensor>& held, const std::function<bool(const at::Tensor&)>& known = {});
  /// Others have written into what it holds, or have put it back.
  void forget() noexcept { bound_.forget(); }

  const AdaptiveClip& adaptive() const noexcept { return adaptive_; }
  AdaptiveClip& adaptive() noexcept { return adaptive_; }

 private:
  ClipRecord clip_gradients(const Before& step);
  Finding spike(const ClipRecord& record);

  GuardClip clip_;
  double spike_z_;
  AdaptiveClip adaptive_;
  detect::Baseline usual_;
  ResultBound bound_;
  double gradient_ = std::numeric_limits<double>::infinity();  // no larger one was seen by before(); Inf: not known
};

/// Of those that hold NaN or Inf; `names` of the tensors in their order, "tensor 3" for one beyond them.
std::vector<std::string> nonfinite_ones(at::TensorList tensors, const std::vector<std::string>& names);
/// True where no element of any is NaN or Inf. On the CPU no op is called; elsewhere one synchronisation per
/// device and dtype.
bool all_finite(at::TensorList tensors);

}  // namespace guard
}  // namespace firstfault
