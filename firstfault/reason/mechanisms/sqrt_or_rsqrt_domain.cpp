// Roots, powers and inverse functions outside of their domain.
#include <cmath>

#include "firstfault/base/numbers.h"
#include "firstfault/reason/mechanisms/mechanism.h"
#include "firstfault/reason/mechanisms/reading.h"

namespace firstfault::reason {
namespace {

/// [low, high] is the domain; a pole is an end of it at which the function is infinite.
struct Domain {
  std::string_view op;
  double low;
  double high;
  bool poles;
  std::string_view words;
};

constexpr double kInf = HUGE_VAL;

constexpr Domain kDomains[] = {
    {"sqrt", 0, kInf, false, "x >= 0"},    {"rsqrt", 0, kInf, true, "x > 0"},   {"acos", -1, 1, false, "[-1, 1]"},
    {"asin", -1, 1, false, "[-1, 1]"},     {"acosh", 1, kInf, false, "x >= 1"}, {"atanh", -1, 1, true, "-1 < x < 1"},
    {"erfinv", -1, 1, true, "-1 < x < 1"},
};

Verdict verdict(const std::string& because) {
  return {"op_domain", because, "clamp the input to the domain, or add an eps inside, before the op."};
}

std::string is_what(const OriginEvidence& evidence) {
  return " is " + std::string(name_of(evidence.first)) + inside(evidence) + ": its ";
}

std::optional<Verdict> from_value(const OriginEvidence& evidence, const Domain& domain, const Operand& operand) {
  const double x = *operand.value;
  const bool outside = x < domain.low || x > domain.high;
  const bool pole = domain.poles && (x == domain.low || x == domain.high);
  if (!(is_inf(evidence.first) ? pole : evidence.first == kNaN && outside)) return std::nullopt;
  const std::string note = x == 0 ? zeros_note(operand) : x < domain.low ? min_note(operand) : max_note(operand);
  return verdict(std::string(domain.op) + " of " + show_number(x) + is_what(evidence) + holds(operand) + note +
                 "; the domain is " + std::string(domain.words));
}

/// The element was not kept: with finite operands a NaN shows that it was outside. An Inf is left alone.
std::optional<Verdict> from_kind(const OriginEvidence& evidence, const Domain& domain, const Operand& operand) {
  if (evidence.first != kNaN || !known_finite(&operand) || is_complex(operand.dtype)) return std::nullopt;
  const bool min_inside = operand.min && *operand.min >= domain.low;
  const bool max_inside = domain.high == kInf || (operand.max && *operand.max <= domain.high);
  if (min_inside && max_inside) return std::nullopt;
  return verdict(std::string(domain.op) + " outside of its domain, " + std::string(domain.words) + "," +
                 is_what(evidence) + called(operand) + " was finite, the element is not kept" + min_note(operand) +
                 (domain.high == kInf ? "" : max_note(operand)));
}

bool fractional(double p) { return std::isfinite(p) && p != std::floor(p); }

std::optional<Verdict> power(const OriginEvidence& evidence) {
  const Operand* base = find(evidence, "self");
  const auto exponent = value_of(find(evidence, "exponent"));
  if (base == nullptr || !exponent) return std::nullopt;
  const std::string to = " to the power " + show_number(*exponent) + is_what(evidence);
  if (const auto x = value_of(base)) {
    const bool root_of_negative = evidence.first == kNaN && std::isfinite(*x) && *x < 0 && fractional(*exponent);
    const bool zero_to_negative = is_inf(evidence.first) && *x == 0 && *exponent < 0;
    if (!root_of_negative && !zero_to_negative) return std::nullopt;
    return verdict(show_number(*x) + to + holds(*base) + (*x == 0 ? zeros_note(*base) : min_note(*base)));
  }
  const bool positive = base->min && *base->min >= 0;
  if (evidence.first != kNaN || !known_finite(base) || !fractional(*exponent) || positive) return std::nullopt;
  if (is_complex(base->dtype)) return std::nullopt;
  return verdict("a negative number" + to + called(*base) + " was finite, the element is not kept" + min_note(*base));
}

/// gamma's logarithm and its derivatives are infinite at 0, -1, -2 …
std::optional<Verdict> gamma(const OriginEvidence& evidence) {
  const Operand* operand = find(evidence, "self");
  const auto x = value_of(operand);
  if (!x || *x > 0 || *x != std::floor(*x)) return std::nullopt;
  return verdict(std::string(judged(evidence)) + " of " + show_number(*x) + is_what(evidence) + holds(*operand) +
                 "; 0 and the negative integers are its poles");
}

std::optional<Verdict> judge(const OriginEvidence& evidence) {
  if (evidence.first == kFinite) return std::nullopt;
  if (one_of(judged(evidence), {"lgamma", "digamma", "polygamma"})) return gamma(evidence);
  if (one_of(judged(evidence), {"pow", "float_power"})) return power(evidence);
  for (const Domain& domain : kDomains) {
    if (domain.op != judged(evidence)) continue;
    const Operand* operand = find(evidence, "self");
    if (operand == nullptr) return std::nullopt;
    return value_of(operand) ? from_value(evidence, domain, *operand) : from_kind(evidence, domain, *operand);
  }
  return std::nullopt;
}

}  // namespace

namespace list {
extern const Mechanism sqrt_or_rsqrt_domain;
const Mechanism sqrt_or_rsqrt_domain{
    .name = "sqrt_or_rsqrt_domain",
    .condition =
        "sqrt(x < 0), rsqrt(x <= 0), pow(x < 0, fractional), pow(0, < 0), acos, asin, acosh, atanh outside their "
        "domain, lgamma and digamma at their poles",
    .cause = "op_domain",
    .reading =
        "The operand is outside of the domain, or at a pole (rsqrt, erfinv and atanh at their ends, lgamma and "
        "digamma at 0 and the negative integers).",
    .remedy = "Clamp the input, or add an eps inside.",
    .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
