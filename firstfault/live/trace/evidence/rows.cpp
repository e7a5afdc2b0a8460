// Softmax-like ops: what counts is the row along the op's own dim.
#include <cmath>
#include <limits>

#include "firstfault/live/measure/scan.h"
#include "firstfault/live/trace/evidence/collect.h"

namespace firstfault::trace::evidence {
namespace {

constexpr std::int64_t kMaxRow = 1 << 20;

bool is_softmax_like(std::string_view op_name) {
  const auto base = intercept::base_name(op_name);
  return base == "_softmax" || base == "_log_softmax" || base == "softmax" || base == "log_softmax" ||
         base == "logsumexp" || base == "_safe_softmax";
}

std::optional<std::int64_t> dim_argument(const intercept::Frame& frame) {
  for (const auto& scalar : frame.scalars) {
    if (scalar.is_integer && frame.traits->arguments[scalar.argument] == "dim") {
      return static_cast<std::int64_t>(scalar.value);
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<RowEvidence> row_of(const intercept::Frame& frame, const std::vector<std::int64_t>& index) {
  if (!is_softmax_like(frame.traits->name) || frame.inputs.empty()) return std::nullopt;
  const at::Tensor& operand = frame.inputs.front().tensor;
  const auto dim = dim_argument(frame);
  if (!dim || frame.inputs.front().written || !measure::can_scan(operand) || operand.dim() == 0) return std::nullopt;
  RowEvidence row;
  row.dim = *dim < 0 ? *dim + operand.dim() : *dim;
  row.length = operand.size(row.dim);
  if (row.length > kMaxRow) return std::nullopt;
  // A reduction has dropped the dim from its output, unless it kept it with length 1.
  std::vector<std::int64_t> element = index;
  if (static_cast<std::int64_t>(element.size()) == operand.dim() - 1) element.insert(element.begin() + row.dim, 0);
  if (static_cast<std::int64_t>(element.size()) != operand.dim()) return std::nullopt;
  for (std::int64_t i = 0; i < row.length; ++i) {
    element[row.dim] = i;
    const double value = measure::value_at(operand, ravel(element, operand.sizes()));
    row.neg_inf += value == -std::numeric_limits<double>::infinity();
    row.nan += std::isnan(value);
  }
  element.erase(element.begin() + row.dim);
  row.index = std::move(element);
  return row;
}

}  // namespace firstfault::trace::evidence
