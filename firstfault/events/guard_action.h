// What a guard did to a step: clipped its gradients, refused it, went back.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace firstfault {

/// A parameter's part in a gradient norm.
struct GradientShare {
  std::string name;
  double share = 0;  ///< of the norm's p-th power
};

struct GuardAction {
  enum class Kind : std::uint8_t { clip, skip, rollback, stop, warn };
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

  std::int64_t step = 0;
  Kind kind = Kind::clip;

  // Of a faulty step.
  std::string fault;           ///< "loss", "gradient", "hyperparameter", "spike" or "result"; "" for a clip
  std::string reason;          ///< what was found, a sentence
  std::string undone;          ///< "copy" or "snapshot" where the optimizer had written already; else ""
  std::int64_t snapshot = -1;  ///< step that the run was taken back to; -1: it was not
  std::int64_t lost = 0;       ///< steps that this cost

  // Of a clip.
  double norm = kUnknown;  ///< before it, over all gradients
  double limit = kUnknown;
  double coefficient = kUnknown;       ///< what the gradients were multiplied by
  double angle = kUnknown;             ///< radians that they were turned by
  double length = kUnknown;            ///< lr * norm: of the step that plain SGD would have made without the clip
  std::vector<GradientShare> largest;  ///< parameters that made up the norm, largest first
};

constexpr std::string_view name_of(GuardAction::Kind kind) noexcept {
  constexpr std::string_view names[] = {"clip", "skip", "rollback", "stop", "warn"};
  return names[static_cast<int>(kind)];
}

}  // namespace firstfault
