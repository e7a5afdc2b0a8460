// The state of LibTorch's own random generators.
#pragma once

#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace firstfault::guard {

/// Of the default generators of the CPU and of every CUDA device that is in use, and of others that are given.
class RandomState {
 public:
  RandomState() = default;
  static RandomState now(const std::vector<at::Generator>& others = {});
  void restore() const;
  bool operator==(const RandomState& other) const;

 private:
  std::vector<at::Generator> generators_;
  std::vector<at::Tensor> states_;
};

}  // namespace firstfault::guard
