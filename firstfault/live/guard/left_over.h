// Gradients that a step finds when it begins, for it to be run again; copied only where steps write into them.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace firstfault::guard {

/// In the first steps it holds references and sees what becomes of them: zero_grad() drops them, and no replay needs
/// them; a step that adds to them needs copies from then on. Not thread-safe.
class LeftOver {
 public:
  void begin(const std::vector<at::Tensor>& parameters);
  /// Of a step that is over.
  void end(const std::vector<at::Tensor>& parameters);
  /// What they were when the step began. `intact` false: the step wrote into one, and there is no copy.
  std::vector<at::Tensor> gradients(const std::vector<at::Tensor>& parameters, bool& intact);

 private:
  enum class Habit : std::uint8_t { learning, replaced, in_place };
  bool written_in_place(const std::vector<at::Tensor>& parameters) const;

  Habit habit_ = Habit::learning;
  int seen_ = 0;
  bool copied_ = false;
  std::vector<at::Tensor> held_;
  std::vector<std::int64_t> versions_;
};

}  // namespace firstfault::guard
