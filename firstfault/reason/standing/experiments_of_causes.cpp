#include "firstfault/reason/standing/experiments_of_causes.h"

#include <algorithm>

#include "firstfault/events/experiment.h"

namespace firstfault::reason {
namespace {

using namespace experiment;

const std::vector<CauseTests>& table() {
  static const std::vector<CauseTests> causes = {
      {.cause = "op_domain",
       .own = {kOperand, kResult},
       .read_off_operands = true,
       .missing = "the step with the operand of that op made ordinary"},
      {.cause = "overflow",
       .own = {kOperand, kResult},
       .read_off_operands = true,
       .missing = "the step with the result of that op made finite"},
      {.cause = "masked_softmax",
       .own = {kOperand, kResult},
       .read_off_operands = true,
       .missing = "the step with the wholly masked rows made visible"},
      {.cause = "loss_definition",
       .own = {kLogProbabilities, kTargetShape, kOperand, kResult, kBatchGrown},
       .read_off_operands = true,
       .missing = "the step with the loss defined otherwise"},
      {.cause = "data_invalid",
       .own = {kWholeClipped, kBatchClipped, kSamples, kOperand, kResult},
       .read_off_operands = true,
       .missing = "the step without these samples"},
      {.cause = "mixed_precision", .own = {kFloat32}, .missing = "the step in float32"},
      {.cause = "data_nonfinite",
       .own = {kBatchImputed},
       .missing = "the step with the bad values of the batch replaced"},
      {.cause = "data_outlier",
       .own = {kBatchClipped},
       .missing = "the step with the batch clipped to the usual range"},
      {.cause = "label_outlier",
       .own = {kBatchClipped},
       .missing = "the step with the batch clipped to the usual range"},
      {.cause = "bad_init", .own = {kInitialised}, .missing = "the first step with parameters drawn anew"},
      {.cause = "hyperparameter",
       .own = {kHyperparameter, kOperand, kResult},
       .read_off_operands = true,
       .missing = "the step with that number repaired"},
      {.cause = "optimizer_state",
       .own = {kHyperparameter, kKeptState},
       .missing = "the step with an eps that counts in this dtype",
       .goes_before = "mixed_precision"},
      {.cause = "lr_too_high",
       .own = {kLowerRate},
       .window = true,
       .missing = "a window of steps with lr / 10 over ten times the steps"},
      {.cause = "warmup_missing",
       .own = {kWarmUp},
       .window = true,
       .missing = "the first steps with the learning rate warmed up"},
      {.cause = "data_scale",
       .own = {kStandardised},
       .window = true,
       .missing = "a window of steps with inputs and targets standardised"},
      {.cause = "missing_zero_grad",
       .own = {kZeroGrad},
       .window = true,
       .missing = "a window of steps with gradients set to zero before each"},
      {.cause = "accumulation_not_averaged",
       .own = {kAveraged},
       .window = true,
       .missing = "a window of steps with the gradients averaged"},
      {.cause = "exploding_gradient",
       .own = {kLowerRate},
       .window = true,
       .missing = "a window of steps with lr / 10 over ten times the steps"},
      {.cause = "vanishing_gradient",
       .own = {kInitialised, kOtherActivation},
       .window = true,
       .missing = "a window of steps with another activation or initialisation",
       .some_of_many = true},
      {.cause = "dead_units",
       .own = {kLeaky, kLowerRate},
       .window = true,
       .missing = "a window of steps with a leaky activation",
       .some_of_many = true},
      {.cause = "saturation",
       .own = {kInitialised, kStandardised, kOtherActivation},
       .window = true,
       .missing = "a window of steps with parameters drawn anew",
       .some_of_many = true},
      {.cause = "weight_decay_sign",
       .own = {kWithoutDecay},
       .window = true,
       .missing = "a window of steps without weight decay"},
      {.cause = "weight_growth", .own = {}, .window = true, .missing = "a window of steps with weight decay"},
      {.cause = "loss_spike",
       .own = {kOtherBatch},
       .window = true,
       .missing = "the window with another batch in its place"},
  };
  return causes;
}

}  // namespace

const CauseTests* tests_of(std::string_view cause) {
  const auto found =
      std::find_if(table().begin(), table().end(), [&](const CauseTests& one) { return one.cause == cause; });
  return found == table().end() ? nullptr : &*found;
}

const std::vector<Rival>& rivals() {
  // Parameters drawn anew, as a new loss, change every value: they cure much that they do not explain.
  static const std::vector<Rival> all = {
      {kBatchImputed, "data_nonfinite", false}, {kFloat32, "mixed_precision", false},
      {kBatchClipped, "data_outlier", false},   {kHyperparameter, "hyperparameter", true},
      {kInitialised, "bad_init", true},
  };
  return all;
}

const std::vector<Rival>& rivals_of_a_lower_rate() {
  static const std::vector<Rival> all = {
      {kAveraged, "accumulation_not_averaged"}, {kZeroGrad, "missing_zero_grad"},
      {kWarmUp, "warmup_missing", true},        {kStandardised, "data_scale", true},
      {kLogProbabilities, "loss_definition"},
  };
  return all;
}

}  // namespace firstfault::reason
