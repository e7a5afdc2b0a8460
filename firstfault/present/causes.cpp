// One table, in the order of the vocabulary.
#include "firstfault/present/causes.h"

#include <algorithm>

#include "firstfault/base/names.h"

namespace firstfault::present {
namespace {

struct Words {
  std::string_view cause;
  std::string_view words;
};

constexpr Words kWords[] = {
    {"op_domain", "an op was given a value outside of its domain"},
    {"overflow", "overflow"},
    {"masked_softmax", "softmax over a row in which everything is masked"},
    {"mixed_precision", "a value beyond what the 16-bit type holds"},
    {"data_nonfinite", "NaN or Inf in the data"},
    {"data_invalid", "data that the loss or the op cannot take"},
    {"loss_definition", "a loss that does not compute what is meant"},
    {"hyperparameter", "a hyperparameter that cannot be used"},
    {"optimizer_state", "the optimizer's state"},
    {"bad_init", "bad initialisation"},
    {"data_outlier", "an outlier in the inputs"},
    {"label_outlier", "an outlier in the targets"},
    {"data_scale", "data that is not scaled"},
    {"lr_too_high", "learning rate too high"},
    {"warmup_missing", "no warm-up of the learning rate"},
    {"exploding_gradient", "exploding gradient"},
    {"vanishing_gradient", "vanishing gradient"},
    {"saturation", "saturated units"},
    {"dead_units", "dead units"},
    {"missing_zero_grad", "gradients are not zeroed between steps"},
    {"accumulation_not_averaged", "accumulated gradients are summed, not averaged"},
    {"weight_decay_sign", "weight decay with the wrong sign"},
    {"weight_growth", "weights that grow without end"},
    {"loss_scale_collapse", "the loss scale is at its floor"},
    {"fp16_underflow", "gradients too small for float16"},
    {"loss_spike", "a spike of the loss"},
    {"clipping_chronic", "most steps are clipped"},
    {"loss_not_decreasing", "the loss does not decrease"},
    {"plateau", "the loss stays on a plateau"},
    {"divergence", "divergence"},
    {"attention_collapse", "attention collapsed"},
    {"moe_collapse", "the router sends nearly everything to one expert"},
    {"optimizer_not_linked", "the optimizer does not hold the model's parameters"},
    {"clip_before_unscale", "gradients are clipped while still multiplied by the loss scale"},
    {"zero_gradient_op", "an op that lets no gradient through"},
    {"not_reproducible", "a fault that does not come back"},
    {"healthy", "healthy"},
};

}  // namespace

std::string words_for_cause(std::string_view cause) {
  for (const Words& entry : kWords)
    if (entry.cause == cause) return std::string(entry.words);
  std::string words = printable(cause);
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

}  // namespace firstfault::present
