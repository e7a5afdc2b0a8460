// Where something is measured, once per step.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace firstfault {

enum class SiteRole : std::uint8_t {
  loss,        ///< what backward() was called on
  input,       ///< a tensor of the batch that the model reads
  target,      ///< a tensor of the batch that only the loss reads
  activation,  ///< output of a nonlinearity (tanh, relu, softmax …), or of the model itself (op "")
  gradient,    ///< of one parameter, as the optimizer takes it
  parameter,   ///< one parameter after the step, and how far the step moved it
  optimizer,   ///< one parameter group: learning rate, Adam's second moment against eps
  clipping,    ///< a guard's clips: all (name ""), or those that one parameter is behind
};

constexpr std::string_view name_of(SiteRole role) noexcept {
  constexpr std::string_view names[] = {"loss",     "input",     "target",    "activation",
                                        "gradient", "parameter", "optimizer", "clipping"};
  return names[static_cast<int>(role)];
}

struct Site {
  SiteRole role = SiteRole::loss;
  std::string module;               ///< path of the module that owns it, "model.layers.0"; "" for none
  std::string name;                 ///< parameter "model.fc.weight"; activation "model.act1"; "input 0"; "group 0"
  std::string op;                   ///< activation: the op, "aten::tanh"; loss: the op that made it; else ""
  std::string dtype;                ///< when first seen
  std::vector<std::int64_t> shape;  ///< when first seen
  std::int32_t order = -1;          ///< place of its module in the first forward pass, 0 first; -1: not known

  /// 1 where there is no shape.
  std::int64_t elements() const noexcept {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    return count;
  }
};

}  // namespace firstfault
