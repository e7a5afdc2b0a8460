// Output and operands, common to all families.
#include "firstfault/live/trace/evidence/collect.h"

#include <cctype>
#include <cmath>

#include <ATen/record_function.h>

#include "firstfault/live/measure/scan.h"

namespace firstfault::trace::evidence {
namespace {

using intercept::Frame;
using intercept::Input;

Operand read_tensor(const Input& input, const std::string& name, const OriginEvidence& evidence, bool pointwise) {
  Operand operand;
  operand.name = name;
  operand.dtype = dtype_name(input.tensor.scalar_type());
  operand.shape = input.tensor.sizes().vec();
  operand.was_overwritten = input.written;
  operand.is_scalar_argument = input.tensor.unsafeGetTensorImpl()->is_wrapped_number();
  if (at::isIntegralType(input.tensor.scalar_type(), /*includeBool=*/true)) {
    operand.state = OperandState::finite;
    const auto index = pointwise ? broadcast_index(input.tensor.sizes(), evidence.shape, evidence.index) : std::nullopt;
    if (!index || input.written) return operand;
    operand.value = measure::integer_at(input.tensor, ravel(*index, input.tensor.sizes()));
    if (operand.value) operand.index = *index;
    return operand;
  }
  const at::Tensor& values = input.written ? input.copy : input.tensor;
  if (input.written && input.looked_at && input.before == 0) operand.state = OperandState::finite;
  if (!values.defined() || !measure::can_scan(values)) return operand;
  const auto range = measure::range_of(values);
  operand.counts = range.bad.counts;
  operand.min = range.min;
  operand.max = range.max;
  operand.zeros = range.zeros;
  operand.state = operand.counts.total() == 0 ? OperandState::finite : OperandState::bad;
  if (!pointwise) return operand;
  if (auto index = broadcast_index(values.sizes(), evidence.shape, evidence.index)) {
    operand.value = measure::value_at(values, ravel(*index, values.sizes()));
    operand.index = std::move(*index);
  }
  return operand;
}

Operand read_scalar(const intercept::ScalarArgument& scalar, const std::string& name) {
  Operand operand;
  operand.name = name;
  operand.dtype = scalar.is_integer ? "int64" : "float64";
  operand.is_scalar_argument = true;
  operand.state = std::isfinite(scalar.value) ? OperandState::finite : OperandState::bad;
  operand.value = scalar.value;
  return operand;
}

}  // namespace

std::string dtype_name(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Float: return "float32";
    case c10::ScalarType::Double: return "float64";
    case c10::ScalarType::Half: return "float16";
    case c10::ScalarType::BFloat16: return "bfloat16";
    case c10::ScalarType::ComplexFloat: return "complex64";
    case c10::ScalarType::ComplexDouble: return "complex128";
    case c10::ScalarType::Long: return "int64";
    case c10::ScalarType::Int: return "int32";
    default: break;
  }
  std::string name = c10::toString(type);
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

std::int64_t ravel(const std::vector<std::int64_t>& index, c10::IntArrayRef shape) {
  std::int64_t flat = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) flat = flat * shape[d] + index[d];
  return flat;
}

std::vector<std::int64_t> unravel(std::int64_t flat, c10::IntArrayRef shape) {
  std::vector<std::int64_t> index(shape.size());
  for (std::size_t d = shape.size(); d-- > 0;) {
    index[d] = flat % shape[d];
    flat /= shape[d];
  }
  return index;
}

OriginEvidence describe_tensor(const at::Tensor& tensor) {
  OriginEvidence evidence;
  evidence.dtype = dtype_name(tensor.scalar_type());
  evidence.shape = tensor.sizes().vec();
  const auto scan = measure::scan_full(tensor);
  evidence.output = scan.counts;
  evidence.first = scan.first_kind;
  if (scan.first >= 0) evidence.index = unravel(scan.first, tensor.sizes());
  return evidence;
}

OriginEvidence collect(const Frame& frame, const at::Tensor& output, std::int32_t item) {
  const at::DisableRecordFunctionGuard unobserved;
  OriginEvidence evidence = describe_tensor(output);
  const auto& op = *frame.traits;
  const bool pointwise = op.pointwise;
  for (const Input& input : frame.inputs) {
    if (item >= 0 && input.item >= 0 && input.item != item) continue;
    if (input.written && ((op.out >> input.argument) & 1)) continue;
    evidence.operands.push_back(read_tensor(input, op.arguments[input.argument], evidence, pointwise));
  }
  for (const auto& scalar : frame.scalars) {
    evidence.operands.push_back(read_scalar(scalar, op.arguments[scalar.argument]));
  }
  evidence.row = row_of(frame, evidence.index);
  return evidence;
}

}  // namespace firstfault::trace::evidence
