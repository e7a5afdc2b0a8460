// exp and its kin beyond the logarithm of the dtype's largest value: ln(65504) = 11.09 for float16, ln(3.403e38) =
// 88.72 for float32 and bfloat16, ln(1.798e308) = 709.8 for float64 (IEEE 754).
#include <cmath>

#include "firstfault/base/numbers.h"
#include "firstfault/reason/mechanisms/mechanism.h"
#include "firstfault/reason/mechanisms/reading.h"

namespace firstfault::reason {
namespace {

/// The |x| above which the op overflows, for a largest value `most`; none for other ops.
std::optional<double> limit(std::string_view op, double most) {
  if (op == "exp" || op == "expm1") return std::log(most);
  if (op == "exp2" || op == "special_exp2") return std::log2(most);
  if (op == "sinh" || op == "cosh") return std::log(most) + std::log(2.0);
  if (op == "i0") return std::log(most);  // I0(x) is about exp(x) / sqrt(2 pi x): a little above
  return std::nullopt;
}

/// The limit is that of real numbers; kernels round, so values within 0.1 % of it count as beyond.
bool beyond(double x, double limit, NonFinite first, bool even) {
  const double along = first == kNegInf ? -x : even ? std::fabs(x) : x;
  return std::isfinite(x) && along > limit * 0.999;
}

std::optional<Verdict> judge(const OriginEvidence& evidence) {
  const std::string_view op = judged(evidence);
  const auto most = largest(evidence.dtype);
  const Operand* operand = find(evidence, "self");
  if (!most || operand == nullptr || is_complex(operand->dtype) || !is_inf(evidence.first)) return std::nullopt;
  const auto edge = limit(op, *most);
  if (!edge) return std::nullopt;
  const auto value = value_of(operand);
  if (value && !beyond(*value, *edge, evidence.first, op == "cosh" || op == "i0")) return std::nullopt;
  if (!value && !known_finite(operand)) return std::nullopt;
  const std::string past = "beyond the largest " + evidence.dtype + ", " + show_number(*most);
  const std::string what = value ? std::string(op) + " of " + show_number(*value) + " is " + past
                                 : std::string(op) + " of a finite number was " + past;
  const std::string where = value ? holds(*operand) : called(*operand) + " was finite, the element is not kept";
  return Verdict{"overflow",
                 what + ", so it is " + std::string(name_of(evidence.first)) + inside(evidence) + ": its " + where +
                     max_note(*operand) + "; " + std::string(op) + " overflows above " + show_number(*edge),
                 "subtract the maximum first (logsumexp, softmax), clamp the input, or stay in log space."};
}

}  // namespace

namespace list {
extern const Mechanism exp_overflow;
const Mechanism exp_overflow{
    .name = "exp_overflow",
    .condition = "exp, exp2, expm1, sinh, cosh, i0 beyond log(max of the dtype)",
    .cause = "overflow",
    .reading = "Limits for exp: 11.09 in float16, 88.72 in float32 and bfloat16, 709.8 in float64.",
    .remedy = "Subtract the maximum first, clamp, or stay in log space.",
    .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
