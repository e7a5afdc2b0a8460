// Reading evidence: what mechanisms share. Nothing here judges.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "firstfault/events/evidence.h"

namespace firstfault::reason {

/// "log" for "aten::log", "aten::log_" and "aten::_foreach_log_"; "_softmax" keeps its own underscore.
std::string_view base_name(std::string_view op) noexcept;

/// The op whose operands the evidence holds: `inner_op`, or `op` where there is none.
std::string_view dispatched_op(const OriginEvidence& evidence) noexcept;

/// base_name() of dispatched_op().
std::string_view judged(const OriginEvidence& evidence) noexcept;

bool one_of(std::string_view name, std::initializer_list<std::string_view> names) noexcept;

/// The operand of that name, or its element of a list ("self[3]" for "self"); null if there is none.
const Operand* find(const OriginEvidence& evidence, std::string_view name) noexcept;

/// The element the bad output was computed from. None where it is not known, and for complex operands, of which only
/// the magnitude is read, but for 0.
std::optional<double> value_of(const Operand* operand) noexcept;

/// Integers always are, inspected or not.
bool known_finite(const Operand* operand) noexcept;

/// At least one operand, and every one of them known to be finite.
bool all_finite(const OriginEvidence& evidence) noexcept;

bool is_inf(NonFinite kind) noexcept;
bool is_integer(std::string_view dtype) noexcept;
bool is_complex(std::string_view dtype) noexcept;

/// The non-finite kind a number is.
NonFinite kind_of(double value) noexcept;

std::int64_t elements(std::span<const std::int64_t> shape) noexcept;

/// Largest finite value; none for an integer or unknown dtype. IEEE 754 and OCP FP8 (448 and 57344).
std::optional<double> largest(std::string_view dtype) noexcept;

/// The largest magnitude among the finite elements, from min and max.
std::optional<double> largest_magnitude(const Operand& operand) noexcept;

/// "operand 'self' (parameter 'fc.weight')", "argument 'alpha'".
std::string called(const Operand& operand);

/// "operand 'self' holds 0 at [2, 17]"; needs value_of().
std::string holds(const Operand& operand);

/// " (131 of 5,120 elements are 0)", or "" where it is not known or says nothing.
std::string zeros_note(const Operand& operand);

/// " (min -0.3)" and " (max 102)", or "" where it is not known or says nothing.
std::string min_note(const Operand& operand);
std::string max_note(const Operand& operand);

/// ", inside SqrtBackward0" where the operands are those of an op inside a backward node, else "".
std::string inside(const OriginEvidence& evidence);

/// "float32", or "the output's type" where it is not known.
std::string dtype_of(const OriginEvidence& evidence);

}  // namespace firstfault::reason
