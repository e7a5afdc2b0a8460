// The decision about one bad output: does it begin here, was it handed on, was it meant. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "firstfault/live/intercept/op_traits.h"

namespace firstfault::trace {

struct OutputFacts {
  std::uint8_t bits = 0;            ///< NonFinite bits of the output
  std::uint8_t unintended_in = 0;   ///< bits of bad operands
  std::uint8_t intended_in = 0;     ///< bits of operands whose Inf is meant
  bool only_first_argument = true;  ///< every bad operand is argument 0
  bool auxiliary = false;           ///< an output that holds Inf, or memory never written, in healthy steps
  bool writes_parameter = false;    ///< nobody means an Inf there
  bool in_optimizer = false;        ///< nor one that a number in its arithmetic makes
  std::optional<double> scalar;     ///< a non-finite number among the arguments
};

struct Judgement {
  bool origin = false;
  bool intended = false;  ///< neither: the op only hands on a bad operand
  bool operator==(const Judgement&) const = default;
};

Judgement judge(const intercept::OpTraits& op, const OutputFacts& facts);

}  // namespace firstfault::trace
