// Reads from the tensors around an op what a mechanism could need. Facts only; one file per op family beside this one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "firstfault/events/evidence.h"
#include "firstfault/live/intercept/frame.h"

namespace firstfault::trace::evidence {

/// "float32", "bfloat16" … as PyTorch's Python API names them.
std::string dtype_name(c10::ScalarType type);

/// The output side only: dtype, shape, counts, first bad element.
OriginEvidence describe_tensor(const at::Tensor& tensor);

/// Everything about one output of the op in `frame`; `item` picks the tensor of a list output (-1: none). Called while
/// the op ends, so operands still hold what it read, but for in-place ones, where the kept copy is read.
OriginEvidence collect(const intercept::Frame& frame, const at::Tensor& output, std::int32_t item);

/// pointwise.cpp: index of the operand's element that a pointwise op used for output element `index`; nullopt where
/// the operand does not broadcast to the output.
std::optional<std::vector<std::int64_t>> broadcast_index(c10::IntArrayRef operand,
                                                         const std::vector<std::int64_t>& output_shape,
                                                         const std::vector<std::int64_t>& index);

/// rows.cpp: the row of a softmax-like op in which the first bad element lies.
std::optional<RowEvidence> row_of(const intercept::Frame& frame, const std::vector<std::int64_t>& index);

std::int64_t ravel(const std::vector<std::int64_t>& index, c10::IntArrayRef shape);
std::vector<std::int64_t> unravel(std::int64_t flat, c10::IntArrayRef shape);

}  // namespace firstfault::trace::evidence
