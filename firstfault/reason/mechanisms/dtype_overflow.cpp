// Finite operands, and a product, a sum, a power, a cast or a matrix product beyond the dtype's largest value
// (65504 for float16: IEEE 754 binary16).
#include <algorithm>
#include <cmath>

#include "firstfault/base/numbers.h"
#include "firstfault/reason/mechanisms/mechanism.h"
#include "firstfault/reason/mechanisms/reading.h"

namespace firstfault::reason {
namespace {

bool multiplies_matrices(std::string_view op) {
  return one_of(op, {"mm",
                     "addmm",
                     "bmm",
                     "baddbmm",
                     "addbmm",
                     "addmv",
                     "mv",
                     "matmul",
                     "linear",
                     "convolution",
                     "_convolution",
                     "mkldnn_convolution",
                     "convolution_backward",
                     "einsum",
                     "addr",
                     "outer",
                     "_slow_conv2d_forward",
                     "slow_conv3d_forward",
                     "thnn_conv2d",
                     "slow_conv_dilated2d",
                     "slow_conv_dilated3d",
                     "slow_conv_transpose2d",
                     "slow_conv_transpose3d",
                     "_conv_depthwise2d",
                     "mkldnn_linear",
                     "_trilinear",
                     "bilinear",
                     "dot",
                     "vdot",
                     "inner",
                     "addbmm"});
}

bool casts(std::string_view op) { return one_of(op, {"_to_copy", "to", "copy", "_autocast_to_reduced_precision"}); }

bool elementwise(std::string_view op) {
  return casts(op) || one_of(op, {"scalar_tensor", "mul", "add", "sub", "rsub", "div", "pow", "square", "reciprocal",
                                  "addcmul", "addcdiv", "lerp", "cumprod", "ldexp", "polar"});
}

/// copy_ reads `src`; what its destination held before is no operand.
const Operand* cast_source(const OriginEvidence& evidence) {
  const Operand* source = find(evidence, "src");
  return source != nullptr ? source : find(evidence, "self");
}

/// The element as real numbers give it; none where an operand's value is not known.
std::optional<double> exact(const OriginEvidence& evidence) {
  const std::string_view op = judged(evidence);
  const auto a = value_of(find(evidence, "self"));
  if (casts(op)) return value_of(cast_source(evidence));
  if (op == "scalar_tensor") return value_of(find(evidence, "s"));
  if (!a) return std::nullopt;
  if (op == "square") return *a * *a;
  if (op == "reciprocal") return 1 / *a;
  const auto b = value_of(find(evidence, op == "pow" ? "exponent" : "other"));
  if (!b) return std::nullopt;
  const double alpha = value_of(find(evidence, "alpha")).value_or(1);
  if (op == "mul") return *a * *b;
  if (op == "div") return *a / *b;
  if (op == "pow") return std::pow(*a, *b);
  if (op == "add") return *a + alpha * *b;
  if (op == "sub") return *a - alpha * *b;
  if (op == "rsub") return *b - alpha * *a;
  return std::nullopt;
}

/// The result cannot exceed this: the operands' largest magnitudes multiplied (a + b <= 2ab for a, b >= 1), times the
/// number of terms that a matrix product can add up. Where a range is not known, the dtype's own largest value stands.
std::optional<double> result_bound(const OriginEvidence& evidence) {
  const std::string_view op = judged(evidence);
  if (casts(op)) {
    const Operand* source = cast_source(evidence);
    return source != nullptr ? largest_magnitude(*source) : std::nullopt;
  }
  if (!multiplies_matrices(op) && !one_of(op, {"mul", "add", "sub", "rsub", "square"})) return std::nullopt;
  double product = 1;
  std::int64_t terms = 2;
  for (const Operand& operand : evidence.operands) {
    auto most = largest_magnitude(operand);
    if (!most) most = largest(operand.dtype);
    if (!most) return std::nullopt;
    product *= std::max(*most, 1.0) * (op == "square" ? std::max(*most, 1.0) : 1.0);
    if (multiplies_matrices(op) && !operand.is_scalar_argument) terms = std::max(terms, elements(operand.shape));
  }
  return product * static_cast<double>(terms);
}

struct Size {
  std::optional<double> exact;  ///< the value itself
  std::optional<double> bound;  ///< or what it cannot exceed
};

bool narrow(std::string_view dtype) { return dtype == "float16" || dtype.starts_with("float8"); }

bool fits_float32(const Size& size) {
  const double most = *largest("float32");
  if (size.exact) return std::fabs(*size.exact) <= most;
  return size.bound && *size.bound <= most;
}

std::string operation_text(const OriginEvidence& evidence) {
  const std::string_view op = judged(evidence);
  std::string text;
  for (const Operand& operand : evidence.operands) {
    if (!value_of(&operand) || (operand.is_scalar_argument && one_of(operand.name, {"alpha", "beta", "value"})))
      continue;
    if (casts(op) && &operand != cast_source(evidence)) continue;
    text += (text.empty() ? ": its " : ", its ") + holds(operand);
  }
  if (!text.empty()) return text;
  for (const Operand& operand : evidence.operands) {
    const auto most = largest_magnitude(operand);
    if (operand.is_scalar_argument || !most || (casts(op) && &operand != cast_source(evidence))) continue;
    text += (text.empty() ? ": its " : ", its ") + called(operand) + " reaches " + show_number(*most);
  }
  return text;
}

std::string sentence(const OriginEvidence& evidence, const Size& size, double most) {
  const std::string op(judged(evidence));
  std::string text = op + " of finite operands went beyond the largest " + evidence.dtype + ", " + show_number(most) +
                     ", and gave " + std::string(name_of(evidence.first)) + inside(evidence) + operation_text(evidence);
  if (size.exact && std::isfinite(*size.exact) && !casts(op))
    text += "; the exact result is " + show_number(*size.exact);
  if (narrow(evidence.dtype))
    text += fits_float32(size) ? "; float32 holds it" : "; whether float32 holds it cannot be read off the operands";
  return text;
}

bool operands_finite(const OriginEvidence& evidence) {
  return casts(judged(evidence)) ? known_finite(cast_source(evidence)) : all_finite(evidence);
}

std::optional<Verdict> judge(const OriginEvidence& evidence) {
  const std::string_view op = judged(evidence);
  const auto most = largest(evidence.dtype);
  const bool matrices = multiplies_matrices(op);
  if (!most || evidence.first == kFinite || !(matrices || elementwise(op))) return std::nullopt;
  if (evidence.first == kNaN && !matrices && !evidence.dtype.starts_with("float8")) return std::nullopt;
  if (!operands_finite(evidence)) return std::nullopt;
  if (op == "div" && !value_of(find(evidence, "other"))) return std::nullopt;  // which may be 0
  Size size{std::nullopt, result_bound(evidence)};
  if (!matrices) size.exact = exact(evidence);
  if (size.exact && !(std::fabs(*size.exact) > *most)) return std::nullopt;
  if (!size.exact && size.bound && *size.bound <= *most) return std::nullopt;
  const bool precision = narrow(evidence.dtype) && fits_float32(size);
  return Verdict{precision ? "mixed_precision" : "overflow", sentence(evidence, size, *most),
                 precision ? "run this op in bfloat16 or float32, or lower the loss scale."
                           : "rescale the operands or use a wider dtype; where they are large because training "
                             "diverges, look for what made them grow."};
}

}  // namespace

namespace list {
extern const Mechanism dtype_overflow;
const Mechanism dtype_overflow{
    .name = "dtype_overflow",
    .condition = "finite operands; a product, sum, power, cast or matrix product beyond the dtype's max",
    .cause = "mixed_precision where float32 holds the result, else overflow",
    .reading =
        "From the operand values where they are known, else from their ranges; where neither tells whether float32 "
        "would hold it, the sentence says so.",
    .remedy = "bfloat16 or float32 for this op, a lower loss scale; else rescale.",
    .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
