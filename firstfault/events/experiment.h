// A step that failed was run again with one thing changed: what was changed, and what came of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "firstfault/events/fact.h"

namespace firstfault {

enum class ExperimentOutcome : std::uint8_t {
  cured,           ///< the step was finite, or the window without its fault
  failed,          ///< it was not, or shows it again
  delayed,         ///< of a window of steps: finite for longer, with the same growth
  not_applicable,  ///< the change has nothing to act on here
  threw,           ///< the program did not run with the change
  out_of_budget,   ///< not made: too many replays, or too much time
};

constexpr std::string_view name_of(ExperimentOutcome outcome) noexcept {
  constexpr std::string_view names[] = {"cured", "failed", "delayed", "not applicable", "threw", "out of budget"};
  return names[static_cast<int>(outcome)];
}

/// Names of experiments, as in docs/replay.md. The first is no experiment but what gives all others their worth.
namespace experiment {
inline constexpr std::string_view kUnchanged = "unchanged";  ///< nothing; failed: exact, bit for bit
inline constexpr std::string_view kPreviousBatch = "previous_batch";
inline constexpr std::string_view kEarlierState = "earlier_state";
inline constexpr std::string_view kFloat32 = "float32";
inline constexpr std::string_view kFloat64 = "float64";
inline constexpr std::string_view kOperand = "operand";       ///< at the first fault: made ordinary
inline constexpr std::string_view kResult = "result";         ///< of the first faults: made finite
inline constexpr std::string_view kSamples = "samples";       ///< the smallest set that fails alone left out
inline constexpr std::string_view kBatchImputed = "imputed";  ///< NaN and Inf in the batch replaced
inline constexpr std::string_view kBatchClipped = "clipped";  ///< to the range of earlier batches
inline constexpr std::string_view kWholeClipped = "whole_numbers_clipped";  ///< likewise: lengths, labels
inline constexpr std::string_view kBatchGrown = "grown";                    ///< the previous batch appended
inline constexpr std::string_view kInitialised = "initialised";             ///< parameters drawn anew
inline constexpr std::string_view kHyperparameter = "hyperparameter";
inline constexpr std::string_view kZeroGrad = "zero_grad";
inline constexpr std::string_view kAveraged = "averaged";
inline constexpr std::string_view kLogProbabilities = "log_probabilities";
inline constexpr std::string_view kTargetShape = "target_shape";
// Of whole windows of steps, only when asked for. The first is the window with nothing changed.
inline constexpr std::string_view kWindow = "window";
inline constexpr std::string_view kLowerRate = "lower_rate";  ///< lr / 10 over ten times the steps, or / 100
inline constexpr std::string_view kStandardised = "standardised";
inline constexpr std::string_view kWarmUp = "warm_up";
inline constexpr std::string_view kOtherBatch = "other_batch";  ///< the one before in its place
inline constexpr std::string_view kLeaky = "leaky_activation";
inline constexpr std::string_view kOtherActivation = "other_activation";
inline constexpr std::string_view kKeptState = "kept_state";  ///< of the optimizer, where the program lost it
inline constexpr std::string_view kWithoutDecay = "without_weight_decay";
}  // namespace experiment

struct Experiment {
  std::string name;
  ExperimentOutcome outcome = ExperimentOutcome::not_applicable;
  std::int64_t step = 0;  ///< as the run counts
  std::string op;         ///< the op that was repaired, "" for none
  std::vector<std::int64_t> samples;
  std::int64_t size = 0;  ///< how much was changed: ops repaired, values clipped, replays of the unchanged step
  std::int64_t replays = 0;
  double seconds = 0;
  std::string text;  ///< one sentence: what was changed, and what came of it
};

/// As a run keeps it. Samples beyond the first 16 are counted only.
Fact fact_of(const Experiment& experiment);
/// Of all facts those that are experiments, in their order.
std::vector<Experiment> experiments_of(const std::vector<Fact>& facts);

}  // namespace firstfault
