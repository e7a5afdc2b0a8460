// The list of mechanisms, in the order in which they are asked: the specific before the general.
#include "firstfault/reason/mechanisms/mechanism.h"

// Who held the value already; then what one op or one family of ops does; then arithmetic in general.
#define FIRSTFAULT_MECHANISMS(ENTRY) \
  ENTRY(unwritten_memory)            \
  ENTRY(compiled_region)             \
  ENTRY(bad_input)                   \
  ENTRY(nonfinite_hyperparameter)    \
  ENTRY(all_targets_ignored)         \
  ENTRY(infeasible_ctc)              \
  ENTRY(fully_masked_row)            \
  ENTRY(optimizer_denominator)       \
  ENTRY(degenerate_decomposition)    \
  ENTRY(derivative_at_boundary)      \
  ENTRY(where_hides_forward_only)    \
  ENTRY(log_of_nonpositive)          \
  ENTRY(sqrt_or_rsqrt_domain)        \
  ENTRY(division_by_zero)            \
  ENTRY(exp_overflow)                \
  ENTRY(inf_minus_inf)               \
  ENTRY(zero_times_inf)              \
  ENTRY(inf_over_inf)                \
  ENTRY(reduction_overflow)          \
  ENTRY(dtype_overflow)

namespace firstfault::reason {

namespace list {
#define FIRSTFAULT_DECLARE(name) extern const Mechanism name;
FIRSTFAULT_MECHANISMS(FIRSTFAULT_DECLARE)
#undef FIRSTFAULT_DECLARE
}  // namespace list

std::span<const Mechanism> mechanisms() noexcept {
#define FIRSTFAULT_ENTRY(name) list::name,
  static const Mechanism all[] = {FIRSTFAULT_MECHANISMS(FIRSTFAULT_ENTRY)};
#undef FIRSTFAULT_ENTRY
  return all;
}

}  // namespace firstfault::reason
