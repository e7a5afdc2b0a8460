// Copies of tensors, to put their values back; and what stands for their bits.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace firstfault::guard {

/// Deep copies, made without an op that an observer sees; any device and layout. An undefined tensor stays undefined.
class Copies {
 public:
  Copies() = default;
  explicit Copies(std::vector<at::Tensor> tensors);

  /// Puts the values back into the same tensors, where their bits are others now. By copy_, seen by observers: what
  /// was bad there is gone. Gives how many were written.
  std::size_t restore() const;
  /// Takes the values anew. All of them: batch norm writes its statistics without a new version.
  void renew();

  const std::vector<at::Tensor>& tensors() const noexcept { return tensors_; }
  const std::vector<at::Tensor>& copies() const noexcept { return copies_; }
  std::int64_t bytes() const noexcept;

 private:
  std::vector<at::Tensor> tensors_, copies_;
};

/// A copy that no observer sees.
at::Tensor unseen_copy(const at::Tensor& tensor);
/// The same in the memory of another one, where dtype and shape are the same.
at::Tensor copied_into(at::Tensor memory, const at::Tensor& tensor);
/// Counts writes; -1 where nobody counts them: undefined, or made in inference mode.
std::int64_t version_of(const at::Tensor& tensor);
/// Same dtype, shape and bits: a NaN equals the same NaN, and -0 is not 0.
bool same_bits(const at::Tensor& a, const at::Tensor& b);
/// 64 bits that stand for dtypes, shapes and bits of all of them, in order. For comparing within a process.
std::uint64_t bits_of(at::TensorList tensors);

}  // namespace firstfault::guard
