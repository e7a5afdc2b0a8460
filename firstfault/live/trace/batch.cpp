// Rules for the batch axis, by kind of op.
#include "firstfault/live/trace/batch.h"

#include <algorithm>
#include <string_view>

namespace firstfault::trace {
namespace {

using intercept::Frame;

std::optional<BatchDim> agreed(const std::optional<BatchDim>& a, const BatchDim& b, bool& conflict) {
  if (a && *a != b) conflict = true;
  return b;
}

// Broadcasting aligns dims from the right.
BatchLayout pointwise_layout(const at::Tensor& output, const Frame& frame, const BatchDims& dims, std::int64_t size) {
  std::optional<BatchDim> found;
  bool conflict = false;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (!dims[i]) continue;
    const at::Tensor& operand = frame.inputs[i].tensor;
    const auto dim = dims[i]->dim + output.dim() - operand.dim();
    if (dim < 0 || output.size(dim) != operand.size(dims[i]->dim)) continue;
    found = agreed(found, {dim, dims[i]->block}, conflict);
  }
  return found && !conflict ? layout_of(output, *found, size) : BatchLayout{};
}

// Rows of a matrix product: every dim of the left operand but its last, of the right one the dims before both.
BatchLayout product_layout(const at::Tensor& output, const Frame& frame, const BatchDims& dims, std::size_t left,
                           std::int64_t size) {
  std::optional<BatchDim> found;
  bool conflict = false;
  for (std::size_t i = left; i < std::min(dims.size(), left + 2); ++i) {
    if (!dims[i]) continue;
    const at::Tensor& operand = frame.inputs[i].tensor;
    const auto last_kept = i == left ? operand.dim() - 2 : operand.dim() - 3;
    if (dims[i]->dim > last_kept || operand.dim() != output.dim()) return {};
    found = agreed(found, *dims[i], conflict);
  }
  return found && !conflict ? layout_of(output, *found, size) : BatchLayout{};
}

BatchLayout reduced_layout(const at::Tensor& output, const Frame& frame, const BatchDim& dim, std::int64_t size) {
  const at::Tensor& operand = frame.inputs.front().tensor;
  std::int64_t removed_before = 0;
  bool any = false;
  for (const auto& scalar : frame.scalars) {
    if (!scalar.is_integer || frame.traits->arguments[scalar.argument] != "dim") continue;
    auto reduced = static_cast<std::int64_t>(scalar.value);
    if (reduced < 0) reduced += operand.dim();
    if (reduced == dim.dim) return {};
    removed_before += reduced < dim.dim;
    any = true;
  }
  if (!any) return {};
  const bool kept = output.dim() == operand.dim();
  return layout_of(output, {dim.dim - (kept ? 0 : removed_before), dim.block}, size);
}

}  // namespace

std::optional<BatchDim> batch_dim(const at::Tensor& view, const BatchLayout& layout) {
  if (!layout.known()) return std::nullopt;
  for (std::int64_t d = 0; d < view.dim(); ++d) {
    const auto stride = view.stride(d);
    if (stride <= 0 || layout.stride % stride != 0) continue;
    const auto block = layout.stride / stride;
    if (view.size(d) == layout.size * block) return BatchDim{d, block};
  }
  return std::nullopt;
}

BatchLayout layout_of(const at::Tensor& tensor, const BatchDim& dim, std::int64_t batch_size) {
  if (dim.dim < 0 || dim.dim >= tensor.dim() || tensor.size(dim.dim) != batch_size * dim.block) return {};
  const auto stride = tensor.stride(dim.dim) * dim.block;
  return stride > 0 ? BatchLayout{stride, batch_size, tensor.storage_offset()} : BatchLayout{};
}

std::optional<std::int64_t> batch_size_read(const Frame& frame) {
  const auto base = intercept::base_name(frame.traits->name);
  const bool convolution = base.find("conv") != std::string_view::npos;
  const bool lookup = base == "embedding";
  std::int64_t weight_dims = 0;
  for (const auto& input : frame.inputs) {
    if (input.tensor.requires_grad() && input.tensor.is_leaf()) weight_dims = std::max(weight_dims, input.tensor.dim());
  }
  for (const auto& input : frame.inputs) {
    const at::Tensor& tensor = input.tensor;
    if (tensor.requires_grad() && tensor.is_leaf()) continue;
    const auto expected = convolution ? weight_dims : lookup ? 1 : 2;
    if (tensor.dim() == 0) continue;
    if (tensor.dim() != expected) return std::nullopt;
    return tensor.size(0);
  }
  return std::nullopt;
}

bool puts_time_first(const Frame& frame) {
  // batch_first is a bool and not among the kept scalars: the safe answer for every recurrent op.
  return frame.traits->batch == intercept::BatchRule::recurrent;
}

BatchLayout infer_layout(const Frame& frame, const at::Tensor& output, const BatchDims& dims, std::int64_t batch_size) {
  using intercept::BatchRule;
  if (dims.empty() || output.dim() == 0) return {};
  const auto& first = dims.front();
  switch (frame.traits->batch) {
    case BatchRule::broadcast: return pointwise_layout(output, frame, dims, batch_size);
    case BatchRule::product: return product_layout(output, frame, dims, 0, batch_size);
    case BatchRule::product_after_bias: return product_layout(output, frame, dims, 1, batch_size);
    case BatchRule::lookup: return dims.size() > 1 && dims[1] ? layout_of(output, *dims[1], batch_size) : BatchLayout{};
    case BatchRule::dim_zero: return first && first->dim == 0 ? layout_of(output, *first, batch_size) : BatchLayout{};
    case BatchRule::all_but_last: {
      const bool kept = first && first->dim < frame.inputs.front().tensor.dim() - 1;
      return kept ? layout_of(output, *first, batch_size) : BatchLayout{};
    }
    case BatchRule::reduction: return first ? reduced_layout(output, frame, *first, batch_size) : BatchLayout{};
    default: return {};
  }
}

std::optional<std::int64_t> sample_at(const at::Tensor& tensor, const BatchLayout& layout,
                                      const std::vector<std::int64_t>& index) {
  if (!layout.known() || static_cast<std::int64_t>(index.size()) != tensor.dim()) return std::nullopt;
  if (!batch_dim(tensor, layout)) return std::nullopt;
  std::int64_t offset = tensor.storage_offset() - layout.base;
  for (std::size_t d = 0; d < index.size(); ++d) offset += index[d] * tensor.stride(static_cast<std::int64_t>(d));
  return offset / layout.stride % layout.size;
}

}  // namespace firstfault::trace
