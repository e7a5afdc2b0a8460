// Reading a run: what went wrong first, and the numbers that rules ask for. Nothing here judges causes.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "firstfault/reason/rules/series.h"
#include "firstfault/record/run.h"

namespace firstfault::reason {

/// What went wrong first, before anybody asks why.
struct Harm {
  enum class Kind : std::uint8_t {
    none,
    fault,       ///< a non-finite loss, gradient or parameter
    divergence,  ///< everything finite, but loss and gradients have grown away and stayed there
  };
  Kind kind = Kind::none;
  std::int64_t step = -1;          ///< first step in which it shows
  const Origin* origin = nullptr;  ///< of a fault: the first one of that step, null where no op was seen
  bool grew = false;               ///< loss, gradients or parameters had grown before it: the fault is an effect
  std::int64_t onset = -1;         ///< first step of that growth
};

/// A step whose learning rate stands far above all before it.
struct RateJump {
  std::int64_t step = -1;
  double from = 0, to = 0;
};

/// How the loss went from the first steps of the run to the last ones before the harm.
enum class Learning : std::uint8_t { unknown, improves, flat, worse };

/// One weight's gradient as seen from the depth of the network.
struct Depth {
  std::int32_t site = -1;
  std::int32_t order = 0;
  double norm = 0;  ///< L2, median over the steps asked for
};

/// Gradient norms fitted by depth: norm ~ lambda^(layers from the last to this one).
struct Growth {
  std::size_t layers = 0;
  double lambda = 1;  ///< factor per layer, walking backward from the last layer to the first
  double total = 1;   ///< first layer's norm over the last layer's
  double smooth = 0;  ///< share of the layer-to-layer changes that go the same way as lambda, 0 to 1
};

class Reading {
 public:
  /// Keeps a reference; every origin must be explained already. Numbers are those of one optimizer's steps: the losses
  /// of a GAN's two do not compare.
  explicit Reading(const Run& run, std::int32_t optimizer = 0);

  const Run& run() const noexcept { return run_; }
  const Harm& harm() const noexcept { return harm_; }

  // Rows ----------------------------------------------------------------------------------------------------------
  /// Of steps that the optimizer took, by step: those that a GradScaler or a guard skipped are left out.
  const std::vector<const StepRow*>& rows() const noexcept { return rows_; }
  /// The same, before the harm; all of them where there is none.
  std::vector<const StepRow*> healthy_rows() const;
  const StepRow* row(std::int64_t step) const noexcept;

  using Field = double StepRow::*;
  using Measure = float Health::*;
  /// Finite values only.
  Series series(Field field) const;
  Series series(std::int32_t site, Measure measure) const;
  /// Before the harm.
  Series healthy(Field field) const;
  Series healthy(std::int32_t site, Measure measure) const;

  /// The first one at or before a step; warm-ups rise gradually and are none.
  std::optional<RateJump> rate_jump(std::int64_t until) const;

  Learning learning() const;
  /// Last loss over first, of medians; 1 where the run is too short to tell. For positive losses.
  double remaining() const;

  // Sites ---------------------------------------------------------------------------------------------------------
  const Site& site(std::int32_t index) const { return run_.sites[static_cast<std::size_t>(index)]; }
  std::vector<std::int32_t> sites(SiteRole role) const;
  const Health* health(std::int64_t step, std::int32_t site) const noexcept;
  /// "Linear"; "" where it is not known.
  std::string_view module_type(std::string_view path) const noexcept;

  /// Gradients of weights (two dimensions and more), one per module, first layer first.
  std::vector<Depth> depths(std::int64_t first, std::int64_t last) const;
  Growth growth_by_depth(const std::vector<Depth>& depths) const;

  // Facts ---------------------------------------------------------------------------------------------------------
  const Fact* fact(FactKind kind) const noexcept;
  static double number(const Fact& fact, const char* name);
  const Transition* first_transition(std::initializer_list<Condition> to, std::int64_t before) const noexcept;

  // Faults --------------------------------------------------------------------------------------------------------
  /// The op that made the first non-finite value where that op is to blame: nothing had grown before it, or its
  /// mechanism is never an effect of growth. Null otherwise.
  const Origin* culprit() const noexcept;

  // Hypotheses ----------------------------------------------------------------------------------------------------
  /// With step, onset and origin's place of the harm filled in.
  Hypothesis about_culprit(const Origin& origin, double confidence) const;
  /// For a divergence: phase "optimizer"; `param` is the first one that was moved away, `op` and `module` are where the
  /// growth ended in a non-finite value, or the module of `param`.
  Hypothesis about_growth(std::string_view cause, double confidence) const;
  /// Sentences about the growth before the harm: loss, gradient norm, update ratio, parameter norm.
  std::vector<Evidence> growth_evidence() const;

 private:
  const Run& run_;
  std::vector<const StepRow*> rows_;
  Harm harm_;
};

/// Three significant digits.
std::string brief(double value);

/// "gradient of 'model.fc.weight'", "input 0".
std::string name_of_site(const Site& site);

/// Not integers: those are tokens and labels, whose size means nothing.
bool floating(const Site& site) noexcept;

/// "SigmoidBackward0" for "aten::sigmoid".
std::string backward_name(std::string_view op);

}  // namespace firstfault::reason
