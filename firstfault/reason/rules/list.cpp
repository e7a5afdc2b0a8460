// The list of rules, in the order in which they are asked: the specific before the general.
#include "firstfault/reason/rules/rule.h"

// What the program does wrong whatever the numbers are; what is read off the first faulty op; what started a
// divergence; what keeps a run from learning; and last what only says that something is wrong.
#define FIRSTFAULT_RULES(ENTRY)    \
  ENTRY(loss_definition)           \
  ENTRY(missing_zero_grad)         \
  ENTRY(clip_before_unscale)       \
  ENTRY(optimizer_not_linked)      \
  ENTRY(weight_decay_sign)         \
  ENTRY(data_outlier)              \
  ENTRY(label_outlier)             \
  ENTRY(data_nonfinite)            \
  ENTRY(data_invalid)              \
  ENTRY(hyperparameter)            \
  ENTRY(masked_softmax)            \
  ENTRY(optimizer_state)           \
  ENTRY(loss_scale_collapse)       \
  ENTRY(mixed_precision)           \
  ENTRY(bad_init)                  \
  ENTRY(exploding_gradient)        \
  ENTRY(overflow)                  \
  ENTRY(op_domain)                 \
  ENTRY(accumulation_not_averaged) \
  ENTRY(weight_growth)             \
  ENTRY(attention_collapse)        \
  ENTRY(data_scale)                \
  ENTRY(lr_too_high)               \
  ENTRY(dead_units)                \
  ENTRY(warmup_missing)            \
  ENTRY(saturation)                \
  ENTRY(vanishing_gradient)        \
  ENTRY(zero_gradient_op)          \
  ENTRY(moe_collapse)              \
  ENTRY(clipping_chronic)          \
  ENTRY(loss_spike)                \
  ENTRY(plateau)                   \
  ENTRY(loss_not_decreasing)       \
  ENTRY(divergence)

namespace firstfault::reason {

namespace list {
#define FIRSTFAULT_DECLARE(name) extern const Rule name;
FIRSTFAULT_RULES(FIRSTFAULT_DECLARE)
#undef FIRSTFAULT_DECLARE
}  // namespace list

std::span<const Rule> rules() {
#define FIRSTFAULT_ENTRY(name) list::name,
  static const Rule all[] = {FIRSTFAULT_RULES(FIRSTFAULT_ENTRY)};
#undef FIRSTFAULT_ENTRY
  return all;
}

}  // namespace firstfault::reason
