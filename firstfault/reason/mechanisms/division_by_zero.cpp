// x/0 and 0/0, written out or hidden in a mean over nothing or a std of one sample.
#include <cmath>

#include "firstfault/base/numbers.h"
#include "firstfault/reason/mechanisms/division.h"
#include "firstfault/reason/mechanisms/mechanism.h"
#include "firstfault/reason/mechanisms/reading.h"

namespace firstfault::reason {
namespace {

/// A mean with its count written out: 0 / (a whole-number 0).
bool is_mean_over_nothing(const ZeroDivision& division) {
  const auto numerator = value_of(division.numerator);
  return numerator && *numerator == 0 && is_integer(division.denominator->dtype);
}

std::optional<Verdict> written_out(const OriginEvidence& evidence) {
  const auto division = zero_division(evidence);
  if (!division || judged(evidence) == "rsqrt") return std::nullopt;
  const auto numerator = value_of(division->numerator);
  const std::string top = numerator                          ? show_number(*numerator)
                          : judged(evidence) == "reciprocal" ? "1"
                          : evidence.first == kNaN           ? "0"
                                                             : "x";
  const bool divides = !one_of(judged(evidence), {"remainder", "fmod"});
  const std::string what = (divides ? top + "/0" : std::string(judged(evidence)) + "(" + top + ", 0)") + " is " +
                           std::string(name_of(evidence.first)) + inside(evidence) + ": its " +
                           denominator_text(*division);
  if (is_mean_over_nothing(*division)) {
    return Verdict{"loss_definition", what + "; a count of 0",
                   "divide by max(1, count), or skip the batch when nothing is left to average."};
  }
  return Verdict{"op_domain", what, "clamp_min or add an eps to the denominator, or skip what is empty."};
}

bool averages(std::string_view name) {
  return one_of(name, {"mean", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
                       "binary_cross_entropy_with_logits", "soft_margin_loss", "kl_div"});
}

std::optional<Verdict> mean_over_nothing(const OriginEvidence& evidence) {
  const Operand* self = find(evidence, "self");
  if (!averages(judged(evidence)) || evidence.first != kNaN || self == nullptr) return std::nullopt;
  if (self->is_scalar_argument || elements(self->shape) != 0) return std::nullopt;
  return Verdict{"loss_definition",
                 std::string(judged(evidence)) + " over 0 elements is 0/0 = NaN" + inside(evidence) + ": its " +
                     called(*self) + " has shape " + show_index(self->shape),
                 "skip the batch when the selection is empty, or divide a sum by max(1, count)."};
}

/// n - correction <= 0. The correction is 1 unless the call says otherwise.
std::optional<Verdict> spread_of_one(const OriginEvidence& evidence) {
  const Operand* self = find(evidence, "self");
  if (!one_of(judged(evidence), {"std", "var", "std_mean", "var_mean"}) || evidence.first != kNaN) return std::nullopt;
  const std::int64_t kept = elements(evidence.shape);
  if (self == nullptr || !known_finite(self) || kept == 0) return std::nullopt;
  const std::int64_t samples = elements(self->shape) / kept;
  const auto correction = value_of(find(evidence, "correction"));
  const auto unbiased = value_of(find(evidence, "unbiased"));
  const double subtracted = correction ? *correction : unbiased ? *unbiased : 1;
  if (static_cast<double>(samples) > subtracted) return std::nullopt;
  return Verdict{"loss_definition",
                 std::string(judged(evidence)) + " of " + show_count(samples) + " sample" + (samples == 1 ? "" : "s") +
                     " divides by n - " + show_number(subtracted) + " <= 0 and is NaN" + inside(evidence) + ": its " +
                     called(*self) + " has shape " + show_index(self->shape),
                 "use correction=0, or skip groups (a last batch) of one sample."};
}

/// A normalisation without an eps, of a group that does not vary (or, for an rms, is 0). Its squares did not overflow.
std::optional<Verdict> norm_without_eps(const OriginEvidence& evidence) {
  const std::string_view op = judged(evidence);
  if (!one_of(op, {"native_layer_norm", "native_group_norm", "native_batch_norm", "_fused_rms_norm"}))
    return std::nullopt;
  const Operand* input = find(evidence, "input");
  const auto eps = value_of(find(evidence, "eps"));
  if (input == nullptr || !all_finite(evidence) || eps.value_or(1) != 0) return std::nullopt;
  const double most = largest_magnitude(*input).value_or(INFINITY);
  if (most * most * static_cast<double>(elements(input->shape)) > largest(evidence.dtype).value_or(0))
    return std::nullopt;
  const std::string what = op == "_fused_rms_norm" ? "0 throughout: it is divided by its rms, 0"
                                                   : "of one value throughout: it is divided by its deviation, 0";
  return Verdict{"op_domain", std::string(op) + " was given a group " + what + ", and eps is 0",
                 "give the normalisation an eps above 0, such as 1e-5."};
}

std::optional<Verdict> judge(const OriginEvidence& evidence) {
  if (auto verdict = written_out(evidence)) return verdict;
  if (auto verdict = norm_without_eps(evidence)) return verdict;
  if (auto verdict = mean_over_nothing(evidence)) return verdict;
  return spread_of_one(evidence);
}

}  // namespace

namespace list {
extern const Mechanism division_by_zero;
const Mechanism division_by_zero{
    .name = "division_by_zero",
    .condition =
        "x/0 gives Inf, 0/0 NaN; a mean over no element; std or var of one sample; a normalisation with an eps of 0",
    .cause = "op_domain; loss_definition for a mean over nothing, a count of 0, or std of one sample",
    .reading =
        "The denominator was 0 at the element. Where the element was not kept it follows from finite operands and "
        "NaN, since only 0/0 gives that.",
    .remedy = "`clamp_min` the denominator; skip what is empty.",
    .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
