#include "firstfault/reason/standing/experiments_of_causes.h"

#include <algorithm>

#include "firstfault/events/experiment.h"

namespace firstfault::reason {
namespace {

using namespace experiment;

const std::vector<CauseTests>& table() {
  static const std::vector<CauseTests> causes = {
      {"op_domain", {kOperand, kResult}, true, false, "the step with the operand of that op made ordinary"},
      {"overflow", {kOperand, kResult}, true, false, "the step with the result of that op made finite"},
      {"masked_softmax", {kOperand, kResult}, true, false, "the step with the wholly masked rows made visible"},
      {"loss_definition",
       {kLogProbabilities, kTargetShape, kOperand, kResult, kBatchGrown},
       true,
       false,
       "the step with the loss defined otherwise"},
      {"data_invalid",
       {kWholeClipped, kBatchClipped, kSamples, kOperand, kResult},
       true,
       false,
       "the step without these samples"},
      {"mixed_precision", {kFloat32}, false, false, "the step in float32"},
      {"data_nonfinite", {kBatchImputed}, false, false, "the step with the bad values of the batch replaced"},
      {"data_outlier", {kBatchClipped}, false, false, "the step with the batch clipped to the usual range"},
      {"label_outlier", {kBatchClipped}, false, false, "the step with the batch clipped to the usual range"},
      {"bad_init", {kInitialised}, false, false, "the first step with parameters drawn anew"},
      {"hyperparameter", {kHyperparameter, kOperand, kResult}, true, false, "the step with that number repaired"},
      {"optimizer_state",
       {kHyperparameter, kKeptState},
       false,
       false,
       "the step with an eps that counts in this dtype",
       "mixed_precision"},
      {"lr_too_high", {kLowerRate}, false, true, "a window of steps with lr / 10 over ten times the steps"},
      {"warmup_missing", {kWarmUp}, false, true, "the first steps with the learning rate warmed up"},
      {"data_scale", {kStandardised}, false, true, "a window of steps with inputs and targets standardised"},
      {"missing_zero_grad", {kZeroGrad}, false, true, "a window of steps with gradients set to zero before each"},
      {"accumulation_not_averaged", {kAveraged}, false, true, "a window of steps with the gradients averaged"},
      {"exploding_gradient", {kLowerRate}, false, true, "a window of steps with lr / 10 over ten times the steps"},
      {"vanishing_gradient",
       {kInitialised, kOtherActivation},
       false,
       true,
       "a window of steps with another activation or initialisation",
       "",
       true},
      {"dead_units", {kLeaky, kLowerRate}, false, true, "a window of steps with a leaky activation", "", true},
      {"saturation",
       {kInitialised, kStandardised, kOtherActivation},
       false,
       true,
       "a window of steps with parameters drawn anew",
       "",
       true},
      {"weight_decay_sign", {kWithoutDecay}, false, true, "a window of steps without weight decay"},
      {"weight_growth", {}, false, true, "a window of steps with weight decay"},
      {"loss_spike", {kOtherBatch}, false, true, "the window with another batch in its place"},
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
