// A reduction of finite numbers whose total, or a square on the way to it, is beyond the dtype.
#include <algorithm>
#include <cmath>

#include "firstfault/base/numbers.h"
#include "firstfault/reason/mechanisms/mechanism.h"
#include "firstfault/reason/mechanisms/reading.h"

namespace firstfault::reason {
namespace {

enum class Kind { none, sum, square, product };

Kind kind(std::string_view op) {
  if (one_of(op, {"sum",
                  "mean",
                  "cumsum",
                  "l1_loss",
                  "smooth_l1_loss",
                  "huber_loss",
                  "logcumsumexp",
                  "scatter_add",
                  "index_add",
                  "scatter_reduce",
                  "segment_reduce",
                  "_segment_reduce",
                  "_embedding_bag",
                  "index_put",
                  "_index_put_impl",
                  "avg_pool1d",
                  "avg_pool2d",
                  "avg_pool3d",
                  "_adaptive_avg_pool2d",
                  "trace"}))
    return Kind::sum;
  if (one_of(op, {"norm", "linalg_vector_norm", "std", "var", "std_mean", "var_mean", "dot", "vdot", "mse_loss",
                  "cdist", "_cdist_forward", "_euclidean_dist", "dist", "hypot", "native_layer_norm",
                  "native_batch_norm", "native_group_norm"}))
    return Kind::square;
  if (one_of(op, {"prod", "cumprod"})) return Kind::product;
  return Kind::none;
}

/// What the total cannot exceed; none where it is not known.
std::optional<double> bound(Kind kind, const OriginEvidence& evidence) {
  double magnitude = 0;
  std::int64_t count = 1;
  for (const Operand& operand : evidence.operands) {
    if (operand.is_scalar_argument) continue;
    const auto most = largest_magnitude(operand);
    if (!most) return std::nullopt;
    magnitude += *most;
    count = std::max(count, elements(operand.shape));
  }
  if (kind == Kind::sum) return magnitude * static_cast<double>(count);
  if (kind == Kind::square) return magnitude * magnitude * static_cast<double>(count);
  return std::nullopt;
}

std::string ranges(const OriginEvidence& evidence) {
  for (const Operand& operand : evidence.operands) {
    if (operand.is_scalar_argument || !operand.min || !operand.max) continue;
    return "; its " + called(operand) + " has " + show_count(elements(operand.shape)) + " elements from " +
           show_number(*operand.min) + " to " + show_number(*operand.max);
  }
  return "";
}

std::optional<Verdict> judge(const OriginEvidence& evidence) {
  const Kind how = kind(judged(evidence));
  const auto most = largest(evidence.dtype);
  if (how == Kind::none || !most || evidence.first == kFinite || !all_finite(evidence)) return std::nullopt;
  if (evidence.first == kNaN && how == Kind::sum) return std::nullopt;
  const auto at_most = bound(how, evidence);
  if (at_most && *at_most <= *most) return std::nullopt;
  const std::string on_the_way = how == Kind::square ? " (its squares are summed)" : "";
  return Verdict{"overflow",
                 std::string(judged(evidence)) + " of finite values" + on_the_way + " went beyond the largest " +
                     evidence.dtype + ", " + show_number(*most) + ", and gave " + std::string(name_of(evidence.first)) +
                     inside(evidence) + ranges(evidence),
                 "accumulate in a wider dtype or rescale first; where the values are large because training diverges, "
                 "look for what made them grow."};
}

}  // namespace

namespace list {
extern const Mechanism reduction_overflow;
const Mechanism reduction_overflow{
    .name = "reduction_overflow",
    .condition = "sum, mean, norm, var, dot, prod or mse_loss of finite values overflows",
    .cause = "overflow",
    .reading =
        "The operands are finite and their range allows a total (or a sum of squares) beyond the dtype; "
        "scatter_add, index_add and pooling count as sums.",
    .remedy = "Accumulate in a wider dtype or rescale; in a divergence, look for what made the values grow.",
    .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
