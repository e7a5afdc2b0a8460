#include "firstfault/live/guard/copies.h"

#include <cstring>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_to_copy.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/contiguous.h>
#include <ATen/ops/copy.h>
#include <ATen/record_function.h>

#include "firstfault/live/measure/memory.h"
#include "firstfault/live/measure/scan.h"

namespace firstfault::guard {
namespace {

// Its elements in one piece on the host; of a sparse tensor the values.
at::Tensor plain(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  const at::Tensor values = measure::explicit_values(tensor);
  at::Tensor plain = (values.defined() ? values : tensor).detach();
  if (plain.is_meta()) return {};
  if (!plain.is_cpu()) plain = at::_to_copy(plain, plain.options().device(at::kCPU));
  if (plain.layout() != at::kStrided || !plain.has_storage()) return {};
  return plain.resolve_conj().resolve_neg().contiguous();
}

// Where both fill one run of the host's memory in the same order; there copy_ costs a small tensor more than its bytes.
bool copied_bytewise(const at::Tensor& from, const at::Tensor& to) {
  const auto source = measure::memory_of(from), target = measure::memory_of(to);
  const bool same = source && target && source->dense && target->dense && source->type == target->type &&
                    source->sizes == target->sizes && source->strides == target->strides && !source->negated &&
                    !source->conjugated && !target->negated && !target->conjugated;
  if (!same) return false;
  if (source->numel == 0) return true;
  std::memcpy(to.mutable_data_ptr(), source->data, static_cast<std::size_t>(source->numel) * from.itemsize());
  return true;
}

std::uint64_t mixed(std::uint64_t hash, std::uint64_t word) {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15ull;
  return hash ^ (hash >> 29);
}

std::uint64_t mixed(std::uint64_t hash, const void* data, std::size_t bytes) {
  const auto* at = static_cast<const std::byte*>(data);
  for (; bytes >= sizeof(std::uint64_t); bytes -= sizeof(std::uint64_t), at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, sizeof(word));
    hash = mixed(hash, word);
  }
  std::uint64_t word = bytes;
  std::memcpy(&word, at, bytes);
  return mixed(hash, word);
}

}  // namespace

at::Tensor unseen_copy(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  const at::DisableRecordFunctionGuard unobserved;
  const at::NoGradGuard no_grad;
  return tensor.detach().clone();
}

at::Tensor copied_into(at::Tensor memory, const at::Tensor& tensor) {
  const at::DisableRecordFunctionGuard unobserved;
  const at::NoGradGuard no_grad;
  if (copied_bytewise(tensor, memory)) return memory;
  const bool fits = tensor.scalar_type() == memory.scalar_type() && tensor.sizes() == memory.sizes() &&
                    tensor.device() == memory.device() && tensor.layout() == memory.layout();
  if (!fits) return unseen_copy(tensor);
  memory.copy_(tensor);
  return memory;
}

Copies::Copies(std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)) {
  copies_.reserve(tensors_.size());
  for (const at::Tensor& tensor : tensors_) copies_.push_back(unseen_copy(tensor));
}

std::size_t Copies::restore() const {
  const at::NoGradGuard no_grad;
  std::size_t written = 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const at::Tensor& tensor = tensors_[i];
    const at::Tensor& copy = copies_[i];
    if (!tensor.defined() || tensor.is_meta()) continue;
    const bool reshaped = tensor.scalar_type() != copy.scalar_type() || tensor.sizes() != copy.sizes();
    if (!reshaped && same_bits(tensor, copy)) continue;
    ++written;
    if (reshaped) {
      tensor.set_data(unseen_copy(copy));
    } else {
      tensor.copy_(copy);
    }
  }
  return written;
}

void Copies::renew() {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const at::Tensor& tensor = tensors_[i];
    if (tensor.defined() && !tensor.is_meta()) copies_[i] = copied_into(std::move(copies_[i]), tensor);
  }
}

std::int64_t Copies::bytes() const noexcept {
  std::int64_t total = 0;
  for (const at::Tensor& copy : copies_) {
    if (!copy.defined() || copy.layout() != at::kStrided || copy.is_meta()) continue;
    total += copy.numel() * static_cast<std::int64_t>(copy.itemsize());
  }
  return total;
}

std::int64_t version_of(const at::Tensor& tensor) {
  return !tensor.defined() || tensor.is_inference() ? -1 : static_cast<std::int64_t>(tensor._version());
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined()) return true;
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  const at::DisableRecordFunctionGuard unobserved;
  const at::Tensor one = plain(a), other = plain(b);
  if (!one.defined() || !other.defined() || one.numel() != other.numel()) return false;
  return one.numel() == 0 || std::memcmp(one.const_data_ptr(), other.const_data_ptr(),
                                         static_cast<std::size_t>(one.numel()) * one.itemsize()) == 0;
}

std::uint64_t bits_of(at::TensorList tensors) {
  const at::DisableRecordFunctionGuard unobserved;
  std::uint64_t hash = 0x243F6A8885A308D3ull;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) {
      hash = mixed(hash, 1);
      continue;
    }
    hash = mixed(hash, static_cast<std::uint64_t>(tensor.scalar_type()) + 2);
    for (const auto size : tensor.sizes()) hash = mixed(hash, static_cast<std::uint64_t>(size));
    const at::Tensor values = plain(tensor);
    if (!values.defined() || values.numel() == 0) continue;
    hash = mixed(hash, values.const_data_ptr(), static_cast<std::size_t>(values.numel()) * values.itemsize());
  }
  return hash;
}

}  // namespace firstfault::guard
