// Gradient clipping that neither overflows nor spreads a NaN, and that says what it did.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "firstfault/events/counts.h"

namespace firstfault {

/// What is done where a gradient holds a NaN or Inf. In no case are the others scaled by it.
enum class OnNonfinite : std::uint8_t {
  error,  ///< throw Error that names the parameters; no gradient is changed
  skip,   ///< change none, and say so in the record
  zero,   ///< set these gradients to 0, and clip the others by the norm of the others
};

struct ClipOptions {
  double norm_type = 2;  ///< p of the p-norm, above 0; infinity: the largest magnitude
  OnNonfinite on_nonfinite = OnNonfinite::error;
  double lr = std::numeric_limits<double>::quiet_NaN();  ///< for ClipRecord::step
  std::vector<std::string> names{};                      ///< of the parameters, for records and errors; may be empty
  bool by_aten = false;  ///< gradients on the CPU as well by ATen's ops, as on other devices; for tests
};

/// One parameter's part in a norm.
struct ClipShare {
  std::int64_t index = -1;  ///< in the list that was given
  std::string name;         ///< "" where no names were given
  double norm = 0;
  double share = 0;  ///< of norm^p; 1 for the one that sets the infinity norm
};

struct BadGradient {
  std::int64_t index = -1;
  std::string name;
  Counts counts;  ///< all 0 where it is not on the CPU: not counted there
  std::int64_t elements = 0;
};

/// What one clip met and did. Norms are in double, taken before the clip, without the gradients in `nonfinite`.
struct ClipRecord {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  /// The parameters that are told apart, at most.
  static constexpr std::size_t kLargest = 3;

  double norm = 0;         ///< over all gradients together
  double norm_type = 2;    ///< its p
  double limit = 0;        ///< max_norm, clip_value or clip_factor
  double coefficient = 1;  ///< what the gradients were multiplied by; by unit: the smallest; by value: of the norm
  double angle = 0;        ///< radians that the whole gradient was turned by: not 0 by value and by unit
  double step = kUnknown;  ///< lr * norm: the length of the step that plain SGD would have made without the clip
  std::int64_t parts = 0;  ///< gradients; by value: elements; by unit: units
  std::int64_t clipped_parts = 0;
  std::vector<ClipShare> largest;  ///< largest first
  std::vector<BadGradient> nonfinite;
  bool skipped = false;  ///< nothing was changed, because of `nonfinite` (or of another rank's)
  bool zeroed = false;   ///< those in `nonfinite` are 0 now

  /// Where the gradients are on another device and nothing had to be decided here: what read() needs to fetch the
  /// numbers above, which are not known yet.
  struct Later {
    at::Tensor norms;  ///< float64, one per gradient, on the device
    at::Tensor total;  ///< 0-dim
    std::vector<std::int64_t> indices;
    ClipOptions options;
  };
  std::shared_ptr<const Later> later;

  bool clipped() const noexcept { return clipped_parts > 0; }
  bool pending() const noexcept { return later != nullptr; }
  /// Fetches what is pending, with one synchronisation.
  void read();
};

/// One line: "norm 12.5 (57 % layer.weight), clipped to 1 (x 0.08)".
std::ostream& operator<<(std::ostream& out, const ClipRecord& record);

/// Scales the gradients of `parameters` to a total p-norm of at most `max_norm`: g * min(1, max_norm / (norm + 1e-6)),
/// as torch.nn.utils.clip_grad_norm_ does (the 1e-6 is its own). The direction stays, so that plain SGD then moves by
/// at most lr * max_norm (Pascanu et al., 2013). Sums are taken in double: finite gradients give a finite norm (on
/// another device float64 ones do below 1e150, and MPS sums in float32). They are written only where the coefficient is
/// below 1. Parameters without gradient count as 0; one given twice counts
/// once. Gradients may differ in dtype, device and layout. One synchronisation at most; none where all gradients are on
/// another device and on_nonfinite is not `error`: see ClipRecord::later. Gradients must not be in use by
/// another thread meanwhile.
ClipRecord clip_grad_norm_(at::TensorList parameters, double max_norm, const ClipOptions& options = {});

/// Bounds each element to [-clip_value, clip_value]. This turns the gradient: see ClipRecord::angle. Real dtypes only.
ClipRecord clip_grad_value_(at::TensorList parameters, double clip_value, const ClipOptions& options = {});

struct UnitClipOptions {
  double clip_factor = 0.01;
  double eps = 1e-3;  ///< least norm of a unit's weights that counts: units that start at 0 can grow
};

/// Adaptive gradient clipping: each unit's gradient to at most clip_factor * max(norm of its weights, eps) (Brock et
/// al., 2021, whose defaults these are). A unit is a slice along dim 0; a tensor of at most one dim is one unit.
ClipRecord clip_grad_units_(at::TensorList parameters, const UnitClipOptions& units = {},
                            const ClipOptions& options = {});

/// The two halves of clip_grad_norm_, for who decides in between: over several ranks, or by a limit that depends on the
/// norm. Keeps the gradients alive.
class GradientNorm {
 public:
  /// Takes gradients, not parameters; undefined ones count as 0. Measures at once.
  explicit GradientNorm(std::vector<at::Tensor> gradients, ClipOptions options = {});
  ~GradientNorm();
  GradientNorm(GradientNorm&&) noexcept;

  /// Over those that are finite. With `on_nonfinite` error or skip, NaN where one is not. May synchronise.
  double total();
  /// Of each gradient that was given, 0 where there is none; not finite where it holds NaN or Inf. May synchronise.
  std::vector<double> norms();
  /// Throws, skips or zeroes as the options say. Once.
  ClipRecord clip(double max_norm);
  /// The same with the norm over all ranks; not finite where any rank's was not.
  ClipRecord clip(double max_norm, double total_of_ranks);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Hears of every clip in this process, on the thread that clips, after it was done. Must not throw and not clip.
class ClipListener {
 public:
  virtual ~ClipListener() = default;
  /// `gradients` as they are now; undefined where there is none. A pending record was not read yet.
  virtual void heard(const ClipRecord& record, at::TensorList gradients) = 0;
};

/// The listener must live until it is removed. Any thread.
void add_clip_listener(ClipListener& listener);
void remove_clip_listener(ClipListener& listener);

}  // namespace firstfault
