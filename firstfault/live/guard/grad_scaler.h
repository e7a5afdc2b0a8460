// Loss scaling for float16 training in C++, which LibTorch has no class for.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "firstfault/live/guard/clip.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace firstfault {

struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;             ///< above 1
  double backoff_factor = 0.5;          ///< above 0, below 1
  std::int64_t growth_interval = 2000;  ///< steps without a skip until the scale grows
  /// The scale does not fall below it, as torch's own may, to 0: a scale below 1 no longer helps against underflow.
  double min_scale = 1;
  bool enabled = true;  ///< false: scale() gives back what it is given, step() steps, and the rest does nothing
};

/// Why an optimizer step was left out.
struct SkippedStep {
  std::int64_t step = 0;               ///< calls of step() before it
  double scale = 0;                    ///< that the loss was multiplied by
  std::vector<BadGradient> nonfinite;  ///< counted on the CPU
};

/// What a checkpoint keeps; the names are those of torch's state_dict().
struct GradScalerState {
  double scale = 0;
  double growth_factor = 0;
  double backoff_factor = 0;
  std::int64_t growth_interval = 0;
  std::int64_t growth_tracker = 0;  ///< steps since the last skip or growth
};

/// The rule of torch.amp.GradScaler: scale(loss).backward(), step(optimizer), update(). step() leaves the optimizer's
/// step out where a gradient is not finite, and update() then lowers the scale; after growth_interval steps without, it
/// raises it. It calls the same ops as torch's, so that who watches them sees the same. Error for calls in the wrong
/// order, and for gradients in float16, which cannot be unscaled without loss. Not thread-safe.
class GradScaler {
 public:
  explicit GradScaler(GradScalerOptions options = {});

  /// Names for skipped(): "layer.weight". Without, parameters are known by their number in the optimizer.
  void name(const torch::nn::Module& module);

  at::Tensor scale(const at::Tensor& outputs);
  /// Divides the optimizer's gradients by the scale now rather than in step(): to clip or to look at them. No
  /// synchronisation.
  void unscale_(torch::optim::Optimizer& optimizer);
  /// Gives whether the optimizer made its step. Reads one number per device.
  bool step(torch::optim::Optimizer& optimizer);
  /// Once per iteration, after the last step().
  void update();
  /// Sets the scale instead.
  void update(double new_scale);

  bool enabled() const noexcept { return options_.enabled; }
  double get_scale() const;  ///< 1 where it is not enabled
  /// The last step that was left out.
  const std::optional<SkippedStep>& skipped() const noexcept { return skipped_; }
  std::int64_t steps() const noexcept { return steps_; }
  std::int64_t skips() const noexcept { return skips_; }
  std::int64_t skips_in_a_row() const noexcept { return row_; }
  /// A skip at the lowest scale: lowering it further is no way out, the cause is another one.
  bool stuck() const;

  GradScalerState state() const;
  void load(const GradScalerState& state);

 private:
  enum class Stage : std::uint8_t { ready, unscaled, stepped };
  struct PerOptimizer {
    Stage stage = Stage::ready;
    std::vector<at::Tensor> found;  // one per device: above 0 where a gradient is not finite
  };

  void begin(at::Device device);
  void need_scale(const char* where) const;
  void unscale_gradients(torch::optim::Optimizer& optimizer, PerOptimizer& state);
  void keep_reason(torch::optim::Optimizer& optimizer);
  at::Tensor all_found() const;

  GradScalerOptions options_;
  at::Tensor scale_, growth_tracker_;  // 0-dim, float32 and int32, on the device of the first loss
  std::int64_t init_tracker_ = 0;
  std::map<const torch::optim::Optimizer*, PerOptimizer> optimizers_;
  std::map<const at::TensorImpl*, std::string> names_;
  std::optional<SkippedStep> skipped_;
  std::int64_t steps_ = 0, skips_ = 0, row_ = 0;
};

}  // namespace firstfault
