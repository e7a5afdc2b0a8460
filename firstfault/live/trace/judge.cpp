// Intended Inf: made by a constant, kept by ops that only place values, ended by ops that mix elements.
#include "firstfault/live/trace/judge.h"

#include <cmath>

#include "firstfault/events/counts.h"

namespace firstfault::trace {

Judgement judge(const intercept::OpTraits& op, const OutputFacts& facts) {
  constexpr Judgement begins{true, false}, handed_on{false, false}, meant{false, true};
  const bool has_nan = facts.bits & kNaN;
  if (facts.auxiliary) return meant;  // a NaN too: _ctc_loss leaves the padding of log_alpha unwritten
  if (facts.unintended_in) return handed_on;
  if (has_nan) return begins;  // a NaN is never meant, not even when an intended Inf made it
  const bool constant = facts.scalar && std::isinf(*facts.scalar);
  if (constant && op.fills && !facts.writes_parameter) return meant;
  if (constant && facts.in_optimizer) return begins;
  const bool passes = op.passes_inf || (op.mask_first && facts.only_first_argument);
  const bool new_sign = facts.bits & ~facts.intended_in;
  if (facts.intended_in && passes && (op.flips_inf || !new_sign)) return meant;
  return begins;
}

}  // namespace firstfault::trace
