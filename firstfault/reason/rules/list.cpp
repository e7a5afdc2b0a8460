// The list of rules, in the order in which they are asked: the specific before the general.
#include "firstfault/reason/rules/rule.h"

// What the program does wrong whatever the numbers are; what is read off the first faulty op; what started a
// divergence; what keeps a run from learning; and last what only says that something is wrong.
#define FIRSTFAULT_RULES(ENTRY)    \
  ENTRY(loss_definition)           \
  ENTRY(missing_zero_grad)         \
  ENTRY(data_outlier)              \
  ENTRY(label_outlier)             \
  ENTRY(data_nonfinite)            \
  ENTRY(data_invalid)              \
  ENTRY(hyperparameter)            \
  ENTRY(masked_softmax)            \
  ENTRY(optimizer_state)           \
  ENTRY(mixed_precision)           \
  ENTRY(overflow)                  \
  ENTRY(op_domain)                 \
  ENTRY(accumulation_not_averaged) \
  ENTRY(data_scale)                \
  ENTRY(lr_too_high)               \
  ENTRY(dead_units)                \
  ENTRY(vanishing_gradient)

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
