// The backward of a function at a point where its value exists and its derivative does not. The formulas are those of
// torch's tools/autograd/derivatives.yaml; which op inside a node divides, takes rsqrt or pow is read from the
// evidence.
#include <cmath>

#include "firstfault/base/numbers.h"
#include "firstfault/reason/mechanisms/division.h"
#include "firstfault/reason/mechanisms/mechanism.h"
#include "firstfault/reason/mechanisms/reading.h"

namespace firstfault::reason {
namespace {

struct Derivative {
  std::string_view op;
  std::string_view at;  ///< what the derivative is there, in words
};

constexpr std::string_view kLog = "the derivative of log at 0 is 1/0 = infinite";
constexpr std::string_view kNorm = "the derivative of a norm at 0 is x/||x|| = 0/0";
constexpr std::string_view kDistance = "the derivative of a distance at distance 0 is (a-b)/||a-b|| = 0/0";
constexpr std::string_view kStd = "the derivative of std at std = 0 is (x-mean)/((n-1)*std) = 0/0";

constexpr Derivative kDerivatives[] = {
    {"sqrt", "the derivative of sqrt at 0 is 1/(2*sqrt(0)) = infinite"},
    {"rsqrt", "the derivative of rsqrt at 0 is infinite"},
    {"reciprocal", "the derivative of 1/x at 0 is infinite"},
    {"div", "the derivatives of x/y at y = 0 are 1/0 and -x/0"},
    {"pow", "the derivative of x**p at x = 0 is p*0**(p-1), infinite for p < 1"},
    {"norm", kNorm},
    {"linalg_vector_norm", kNorm},
    {"linalg_norm", kNorm},
    {"linalg_matrix_norm", kNorm},
    {"hypot", "the derivative of hypot at (0, 0) is x/hypot(x, y) = 0/0"},
    {"dist", kDistance},
    {"cdist", kDistance},
    {"_cdist_forward", kDistance},
    {"_euclidean_dist", kDistance},
    {"_pdist_forward", kDistance},
    {"std", kStd},
    {"std_mean", kStd},
    {"log", kLog},
    {"log2", kLog},
    {"log10", kLog},
    {"log1p", "the derivative of log1p at -1 is 1/0 = infinite"},
    {"xlogy", "the derivative of x*log(y) in y is x/y, which is 0/0 at x = y = 0"},
    {"logit", "the derivative of logit at 0 and at 1 is 1/(x*(1-x)) = infinite"},
    {"acos", "the derivative of acos at 1 and -1 is -1/sqrt(1-x*x) = infinite"},
    {"asin", "the derivative of asin at 1 and -1 is 1/sqrt(1-x*x) = infinite"},
    {"acosh", "the derivative of acosh at 1 is 1/sqrt(x*x-1) = infinite"},
    {"atanh", "the derivative of atanh at 1 and -1 is 1/(1-x*x) = infinite"},
    {"atan2", "the derivative of atan2 at (0, 0) divides by x*x + y*y = 0"},
};

/// "linalgvectornorm" for linalg_vector_norm and for LinalgVectorNormBackward0.
std::string squashed(std::string_view name) {
  std::string out;
  for (const char c : name.substr(0, name.find("Backward"))) {
    if (c != '_') out += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  }
  return out;
}

const Derivative* derivative_of(const OriginEvidence& evidence) {
  const bool known = !evidence.forward_op.empty();
  const std::string name = squashed(known ? base_name(evidence.forward_op) : std::string_view(evidence.op));
  for (const Derivative& entry : kDerivatives)
    if (squashed(entry.op) == name) return &entry;
  return nullptr;
}

/// pow of 0 with a negative exponent, as in the backward of pow.
std::optional<std::string> zero_to_a_negative(const OriginEvidence& evidence) {
  const Operand* base = find(evidence, "self");
  const auto x = value_of(base);
  const auto p = value_of(find(evidence, "exponent"));
  if (judged(evidence) != "pow" || !x || !p || *x != 0 || *p >= 0) return std::nullopt;
  return holds(*base) + zeros_note(*base) + ", taken to the power " + show_number(*p);
}

/// 0 * Inf where the Inf is the local derivative, made inside the node.
std::optional<std::string> zero_times_derivative(const OriginEvidence& evidence) {
  const Operand* a = find(evidence, "self");
  const Operand* b = find(evidence, "other");
  const auto x = value_of(a);
  const auto y = value_of(b);
  if (judged(evidence) != "mul" || evidence.first != kNaN || !x || !y) return std::nullopt;
  const bool meets = (*x == 0 && std::isinf(*y)) || (*y == 0 && std::isinf(*x));
  if (!meets) return std::nullopt;
  return holds(*a) + " and " + holds(*b) + ", and 0 * Inf is NaN";
}

std::string division_text(const OriginEvidence& evidence, const ZeroDivision& division) {
  std::string text = denominator_text(division);
  const auto numerator = value_of(division.numerator);
  if (numerator && *numerator == 0 && evidence.first == kNaN)
    text += ", and the value it divides, '" + division.numerator->name + "', is 0 as well: 0/0 is NaN";
  return text;
}

/// logsumexp of a row that is all -Inf: its backward takes (-Inf) - (-Inf).
std::optional<std::string> logsumexp_of_nothing(const OriginEvidence& evidence) {
  if (base_name(evidence.forward_op) != "logsumexp" || judged(evidence) != "sub") return std::nullopt;
  const auto x = value_of(find(evidence, "self"));
  const auto total = value_of(find(evidence, "other"));
  if (!x || !total || kind_of(*x) != kNegInf || kind_of(*total) != kNegInf) return std::nullopt;
  return "the gradient of logsumexp is exp(x - logsumexp(x)), and where a whole row is -Inf this is "
         "exp((-Inf) - (-Inf)) = NaN: " +
         holds(*find(evidence, "self"));
}

std::optional<std::string> operands_text(const OriginEvidence& evidence, const Derivative& derivative) {
  if (const auto division = zero_division(evidence)) return division_text(evidence, *division);
  if (auto text = zero_to_a_negative(evidence)) return text;
  const bool finite_forward = one_of(derivative.op, {"pow", "sqrt", "acos", "asin", "acosh"});
  return finite_forward ? zero_times_derivative(evidence) : std::nullopt;
}

std::string advice(const Derivative& derivative) {
  const bool divides = one_of(derivative.op, {"div", "reciprocal", "xlogy", "atan2"});
  return (divides ? std::string("keep the denominator away from 0 (eps, clamp_min)")
                  : "add an eps inside " + std::string(derivative.op)) +
         ", or mask the input before the op, not its output after it.";
}

std::optional<Verdict> judge(const OriginEvidence& evidence) {
  if (!evidence.in_backward) return std::nullopt;
  if (const auto text = logsumexp_of_nothing(evidence)) {
    return Verdict{"op_domain", *text + inside(evidence),
                   "use a large finite negative number in place of -Inf, or leave such rows out before the op."};
  }
  const Derivative* derivative = derivative_of(evidence);
  if (derivative == nullptr) return std::nullopt;
  const auto operands = operands_text(evidence, *derivative);
  if (!operands) return std::nullopt;
  return Verdict{"op_domain",
                 std::string(derivative->at) + ": in " + std::string(dispatched_op(evidence)) + inside(evidence) +
                     ", " + *operands,
                 advice(*derivative)};
}

}  // namespace

namespace list {
extern const Mechanism derivative_at_boundary;
const Mechanism derivative_at_boundary{
    .name = "derivative_at_boundary",
    .condition = "backward of sqrt, norm, std, pow, acos, log and the like where the derivative is 1/0, 0/0 or 0 * Inf",
    .cause = "op_domain",
    .reading =
        "The value exists, its derivative does not: sqrt(0) is 0, and its slope there is infinite. The op inside "
        "the node that divides, takes rsqrt or pow is read, and must show the 0.",
    .remedy = "An eps inside the op, or mask its input, not its output.",
    .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
