// Reading evidence: what mechanisms share.
#include "firstfault/reason/mechanisms/reading.h"

#include <algorithm>
#include <cmath>

#include "firstfault/base/numbers.h"

namespace firstfault::reason {
namespace {

constexpr std::string_view kNamespace = "aten::";
constexpr std::string_view kForeach = "_foreach_";

struct Format {
  std::string_view dtype;
  double largest;
};

constexpr Format kFormats[] = {
    {"float16", 65504.0},
    {"bfloat16", 3.3895313892515355e38},
    {"float32", 3.4028234663852886e38},
    {"float64", 1.7976931348623157e308},
    {"float8_e4m3fn", 448.0},
    {"float8_e5m2", 57344.0},
};

bool is_the_value(const Operand& operand, const std::optional<double>& number) {
  return operand.value && number && *operand.value == *number;
}

}  // namespace

std::string_view base_name(std::string_view op) noexcept {
  if (op.starts_with(kNamespace)) op.remove_prefix(kNamespace.size());
  if (op.starts_with(kForeach)) op.remove_prefix(kForeach.size());
  if (op.size() > 1 && op.ends_with('_')) op.remove_suffix(1);
  return op;
}

std::string_view dispatched_op(const OriginEvidence& evidence) noexcept {
  return evidence.inner_op.empty() ? evidence.op : evidence.inner_op;
}

std::string_view judged(const OriginEvidence& evidence) noexcept { return base_name(dispatched_op(evidence)); }

bool one_of(std::string_view name, std::initializer_list<std::string_view> names) noexcept {
  return std::find(names.begin(), names.end(), name) != names.end();
}

const Operand* find(const OriginEvidence& evidence, std::string_view name) noexcept {
  for (const Operand& operand : evidence.operands) {
    const std::string_view other = operand.name;
    if (other == name) return &operand;
    if (other.size() > name.size() && other.starts_with(name) && other[name.size()] == '[') return &operand;
  }
  return nullptr;
}

std::optional<double> value_of(const Operand* operand) noexcept {
  if (operand == nullptr) return std::nullopt;
  if (is_complex(operand->dtype) && operand->value != 0.0) return std::nullopt;
  return operand->value;
}

bool known_finite(const Operand* operand) noexcept {
  if (operand == nullptr) return false;
  if (operand->is_scalar_argument && operand->value) return std::isfinite(*operand->value);
  return operand->state == OperandState::finite || is_integer(operand->dtype);
}

bool all_finite(const OriginEvidence& evidence) noexcept {
  return !evidence.operands.empty() && std::all_of(evidence.operands.begin(), evidence.operands.end(),
                                                   [](const Operand& operand) { return known_finite(&operand); });
}

bool is_inf(NonFinite kind) noexcept { return (kind & kAnyInf) != 0; }

bool is_integer(std::string_view dtype) noexcept {
  return dtype == "bool" || dtype.starts_with("int") || dtype.starts_with("uint");
}

bool is_complex(std::string_view dtype) noexcept { return dtype.starts_with("complex"); }

NonFinite kind_of(double value) noexcept {
  if (std::isnan(value)) return kNaN;
  if (!std::isinf(value)) return kFinite;
  return value > 0 ? kPosInf : kNegInf;
}

std::int64_t elements(std::span<const std::int64_t> shape) noexcept {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

std::optional<double> largest(std::string_view dtype) noexcept {
  for (const Format& format : kFormats)
    if (format.dtype == dtype) return format.largest;
  return std::nullopt;
}

std::optional<double> largest_magnitude(const Operand& operand) noexcept {
  if (operand.is_scalar_argument && operand.value) return std::fabs(*operand.value);
  if (!operand.min || !operand.max) return std::nullopt;
  return std::max(std::fabs(*operand.min), std::fabs(*operand.max));
}

std::string called(const Operand& operand) {
  std::string text = (operand.is_scalar_argument ? "argument '" : "operand '") + operand.name + "'";
  if (!operand.source.empty()) text += " (" + operand.source + ")";
  return text;
}

std::string holds(const Operand& operand) {
  std::string text = called(operand);
  const bool single = operand.is_scalar_argument || operand.shape.empty();
  text += (single ? " is " : " holds ") + show_number(operand.value.value_or(std::nan("")));
  if (!single && !operand.index.empty()) text += " at " + show_index(operand.index);
  return text;
}

std::string zeros_note(const Operand& operand) {
  const std::int64_t all = elements(operand.shape);
  if (operand.is_scalar_argument || !operand.zeros || *operand.zeros == 0 || all < 2) return "";
  if (*operand.zeros == all) return " (all " + show_count(all) + " elements are 0)";
  const char* verb = *operand.zeros == 1 ? " elements is 0)" : " elements are 0)";
  return " (" + show_count(*operand.zeros) + " of " + show_count(all) + verb;
}

std::string min_note(const Operand& operand) {
  if (!operand.min || is_the_value(operand, operand.min)) return "";
  return " (min " + show_number(*operand.min) + ")";
}

std::string max_note(const Operand& operand) {
  if (!operand.max || is_the_value(operand, operand.max)) return "";
  return " (max " + show_number(*operand.max) + ")";
}

std::string inside(const OriginEvidence& evidence) {
  if (!evidence.in_backward || evidence.inner_op.empty() || evidence.inner_op == evidence.op) return "";
  return ", inside " + evidence.op;
}

std::string dtype_of(const OriginEvidence& evidence) {
  return evidence.dtype.empty() ? "the output's type" : evidence.dtype;
}

}  // namespace firstfault::reason
