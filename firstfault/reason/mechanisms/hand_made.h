// Evidence written by hand, for the tests of mechanisms.
#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "firstfault/reason/mechanisms/mechanism.h"

namespace firstfault::reason::hand_made {

using Shape = std::vector<std::int64_t>;

/// A finite float32 operand of 64 x 80 with `value` at [2, 17].
inline Operand tensor(std::string name, std::optional<double> value) {
  Operand operand;
  operand.name = std::move(name);
  operand.dtype = "float32";
  operand.shape = {64, 80};
  operand.index = {2, 17};
  operand.state = OperandState::finite;
  operand.value = value;
  if (value && !std::isfinite(*value)) operand.state = OperandState::intended_inf;
  return operand;
}

inline Operand with_dtype(Operand operand, std::string dtype) {
  operand.dtype = std::move(dtype);
  return operand;
}

inline Operand with_range(Operand operand, double min, double max, std::int64_t zeros = 0) {
  operand.min = min;
  operand.max = max;
  operand.zeros = zeros;
  return operand;
}

inline Operand with_shape(Operand operand, Shape shape) {
  operand.shape = std::move(shape);
  operand.index.clear();
  return operand;
}

/// As the operand of an in-place or foreach op whose element was not kept.
inline Operand not_kept(Operand operand) {
  operand.value.reset();
  operand.was_overwritten = true;
  return operand;
}

inline Operand unknown(Operand operand) {
  operand.value.reset();
  operand.state = OperandState::unknown;
  return operand;
}

inline Operand scalar(std::string name, double value) {
  Operand operand;
  operand.name = std::move(name);
  operand.dtype = "float64";
  operand.is_scalar_argument = true;
  operand.value = value;
  operand.state = std::isfinite(value) ? OperandState::finite : OperandState::bad;
  return operand;
}

inline OriginEvidence forward(std::string op, NonFinite first, std::vector<Operand> operands) {
  OriginEvidence evidence;
  evidence.op = std::move(op);
  evidence.dtype = "float32";
  evidence.shape = {64, 80};
  evidence.first = first;
  evidence.index = {2, 17};
  evidence.operands = std::move(operands);
  return evidence;
}

/// An op inside a backward node.
inline OriginEvidence backward(std::string node, std::string inner, NonFinite first, std::vector<Operand> operands) {
  OriginEvidence evidence = forward(std::move(node), first, std::move(operands));
  evidence.inner_op = std::move(inner);
  evidence.in_backward = true;
  return evidence;
}

inline OriginEvidence of_forward(OriginEvidence evidence, std::string forward_op) {
  evidence.forward_op = std::move(forward_op);
  return evidence;
}

/// What one mechanism of the list says, asked alone.
inline std::optional<Verdict> ask(std::string_view mechanism, const OriginEvidence& evidence) {
  for (const Mechanism& entry : mechanisms())
    if (entry.name == mechanism) return entry.judge(evidence);
  return Verdict{"no such mechanism", std::string(mechanism), ""};
}

/// The first mechanism of the list that fits; "" if none does.
inline std::string_view winner(const OriginEvidence& evidence) {
  for (const Mechanism& entry : mechanisms())
    if (entry.judge(evidence)) return entry.name;
  return "";
}

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

}  // namespace firstfault::reason::hand_made
