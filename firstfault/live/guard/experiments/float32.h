// The step in float32, as far as its precision is that of tensors, or autocast's.
#pragma once

#include <atomic>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include "firstfault/live/guard/replay.h"

namespace firstfault::guard {

/// Between begin() and end() these tensors, where they are float16 or bfloat16, are float32, and autocast casts to
/// float32. What the program casts by itself stays: `low` says whether any op gave such a value. One at a time in a
/// process.
class InFloat32 {
 public:
  InFloat32() = default;
  ~InFloat32() { end(); }
  InFloat32(const InFloat32&) = delete;
  InFloat32& operator=(const InFloat32&) = delete;

  void begin(const std::vector<at::Tensor>& tensors);
  void end();
  bool low() const noexcept { return low_.load(); }

  static bool any(const std::vector<at::Tensor>& tensors);
  static BatchTensors widened(BatchTensors batch);

 private:
  static std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& record);
  static void on_end(const at::RecordFunction& record, at::ObserverContext* context);

  std::vector<std::pair<at::Tensor, at::Tensor>> kept_;  // the tensor, and its data
  std::vector<std::pair<at::DeviceType, at::ScalarType>> casts_;
  std::atomic<bool> low_{false};
  at::CallbackHandle handle_ = 0;
};

}  // namespace firstfault::guard
