// log at and below the edge of its domain.
#include <algorithm>

#include "firstfault/base/numbers.h"
#include "firstfault/reason/mechanisms/mechanism.h"
#include "firstfault/reason/mechanisms/reading.h"

namespace firstfault::reason {
namespace {

struct Log {
  std::string_view op;
  std::string_view operand;
  double edge;                 ///< infinite there, NaN below
  bool infinite_only_at_edge;  ///< an Inf proves that the operand was at the edge
};

constexpr Log kLogs[] = {
    {"log", "self", 0, true},    {"log2", "self", 0, true},    {"log10", "self", 0, true},
    {"log1p", "self", -1, true}, {"xlogy", "other", 0, false}, {"special_xlog1py", "other", -1, false},
};

const char* kAdvice = "clamp or add an eps inside the log, or use log_softmax, logsigmoid, log1p or BCEWithLogitsLoss.";

std::string notes(const Log& log, const Operand& operand) {
  return (log.edge == 0 && !operand.value ? min_note(operand) : "") + (log.edge == 0 ? zeros_note(operand) : "");
}

std::optional<Verdict> from_value(const OriginEvidence& evidence, const Log& log, const Operand& operand) {
  const double value = *operand.value;
  const bool fits = is_inf(evidence.first) ? value == log.edge : evidence.first == kNaN && value < log.edge;
  if (!fits) return std::nullopt;
  const std::string note = value < log.edge ? min_note(operand) : notes(log, operand);
  return Verdict{"op_domain",
                 std::string(log.op) + " of " + show_number(value) + " is " + std::string(name_of(evidence.first)) +
                     inside(evidence) + ": its " + holds(operand) + note,
                 kAdvice};
}

/// The element was not kept (in-place and foreach ops), but a log of finite numbers leaves one reading only.
std::optional<Verdict> from_kind(const OriginEvidence& evidence, const Log& log, const Operand& operand) {
  if (!known_finite(&operand) || is_complex(operand.dtype)) return std::nullopt;
  if (is_inf(evidence.first) && !log.infinite_only_at_edge) return std::nullopt;
  if (evidence.first == kNaN && operand.min && *operand.min >= log.edge) return std::nullopt;
  const std::string what = is_inf(evidence.first) ? show_number(log.edge)
                           : log.edge == 0        ? std::string("a negative number")
                                                  : "a number below " + show_number(log.edge);
  return Verdict{"op_domain",
                 std::string(log.op) + " of " + what + " is " + std::string(name_of(evidence.first)) +
                     inside(evidence) + ": its " + called(operand) +
                     " was finite, and the element is not kept but can be nothing else" + notes(log, operand),
                 kAdvice};
}

/// logit(x) = log(x / (1 - x)): infinite at 0 and 1, NaN outside [0, 1].
std::optional<Verdict> logit(const OriginEvidence& evidence) {
  const Operand* operand = find(evidence, "self");
  const auto value = value_of(operand);
  if (!value) return std::nullopt;
  const bool edge = *value == 0 || *value == 1;
  const bool outside = *value < 0 || *value > 1;
  if (!(is_inf(evidence.first) ? edge : evidence.first == kNaN && outside)) return std::nullopt;
  return Verdict{"op_domain",
                 "logit of " + show_number(*value) + " is " + std::string(name_of(evidence.first)) + inside(evidence) +
                     ": its " + holds(*operand),
                 "keep the logits and work with them, or give logit an eps."};
}

bool all_constant(const OriginEvidence& evidence) {
  return std::all_of(evidence.operands.begin(), evidence.operands.end(),
                     [](const Operand& operand) { return operand.is_scalar_argument; });
}

/// The NaN is a constant that logdet chooses where the determinant is negative.
std::optional<Verdict> logdet(const OriginEvidence& evidence) {
  if (evidence.first != kNaN || !all_constant(evidence)) return std::nullopt;
  return Verdict{"op_domain", "logdet of a matrix with a negative determinant is NaN",
                 "use slogdet, which gives sign and logarithm, or keep the matrix positive definite."};
}

std::optional<Verdict> judge(const OriginEvidence& evidence) {
  if (evidence.first == kFinite) return std::nullopt;
  if (base_name(evidence.op) == "logdet") return logdet(evidence);
  if (judged(evidence) == "logit") return logit(evidence);
  for (const Log& log : kLogs) {
    if (log.op != judged(evidence)) continue;
    const Operand* operand = find(evidence, log.operand);
    if (operand == nullptr) return std::nullopt;
    return value_of(operand) ? from_value(evidence, log, *operand) : from_kind(evidence, log, *operand);
  }
  return std::nullopt;
}

}  // namespace

namespace list {
extern const Mechanism log_of_nonpositive;
const Mechanism log_of_nonpositive{
    .name = "log_of_nonpositive",
    .condition = "log, log2, log10, log1p (x <= -1), xlogy, logit, logdet: 0 gives Inf, below gives NaN",
    .cause = "op_domain",
    .reading =
        "log(0) = -Inf, log(x < 0) = NaN; the edge of log1p is -1; xlogy is read at its second operand; logit is "
        "infinite at 0 and 1.",
    .remedy = "Clamp or add an eps inside the log; use log_softmax, logsigmoid, log1p or BCEWithLogitsLoss.",
    .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
