// Finds the memory behind a tensor, if there is any, and orders its dims.
#include "firstfault/live/measure/memory.h"

#include <algorithm>
#include <cstring>

namespace firstfault::measure {
namespace {

// Wrappers, whose own storage is not what the program sees; ZeroTensor has no memory.
constexpr c10::DispatchKeySet kNotPlain({c10::DispatchKey::Python, c10::DispatchKey::FuncTorchBatched,
                                         c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::Functionalize,
                                         c10::DispatchKey::Batched, c10::DispatchKey::BatchedNestedTensor,
                                         c10::DispatchKey::ZeroTensor});

bool is_floating_or_complex(at::ScalarType type) noexcept {
  switch (type) {
    case at::kFloat:
    case at::kDouble:
    case at::kHalf:
    case at::kBFloat16:
    case at::kComplexHalf:
    case at::kComplexFloat:
    case at::kComplexDouble:
    case at::kFloat8_e5m2:
    case at::kFloat8_e4m3fn:
    case at::kFloat8_e5m2fnuz:
    case at::kFloat8_e4m3fnuz:
    case at::kFloat8_e8m0fnu: return true;
    default: return false;
  }
}

// One past the last element that the tensor can reach, from `data` on.
std::int64_t reach(const Memory& memory) noexcept {
  if (memory.dense) return memory.numel;
  std::int64_t last = 0;
  for (std::size_t d = 0; d < memory.sizes.size(); ++d) last += (memory.sizes[d] - 1) * memory.strides[d];
  return last + 1;
}

// False where the storage was freed, shrunk (as sharding wrappers do) or never filled.
bool find_data(const at::TensorImpl& impl, std::size_t itemsize, Memory& memory) {
  const c10::StorageImpl* storage = impl.unsafe_storage().unsafeGetStorageImpl();
  if (!storage) return false;
  const auto* data = static_cast<const std::byte*>(storage->data());
  const auto needed = static_cast<std::size_t>(impl.storage_offset() + reach(memory)) * itemsize;
  if (!data || needed > storage->nbytes()) return false;
  memory.data = data + static_cast<std::size_t>(impl.storage_offset()) * itemsize;
  return true;
}

}  // namespace

std::optional<Memory> memory_of(const at::Tensor& tensor) noexcept {
  if (!tensor.defined()) return std::nullopt;
  const at::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  const c10::DispatchKeySet keys = impl.key_set();
  if (!keys.has(c10::DispatchKey::CPU) || keys.has_any(kNotPlain)) return std::nullopt;
  Memory memory;
  memory.type = c10::typeMetaToScalarType(impl.dtype());
  if (!is_floating_or_complex(memory.type)) return std::nullopt;
  try {  // symbolic sizes and storages that refuse access throw
    memory.numel = impl.numel();
    memory.sizes = impl.sizes();
    if (memory.numel == 0) return memory;
    memory.strides = impl.strides();
    memory.dense = impl.is_non_overlapping_and_dense();
    memory.negated = impl.is_neg();
    memory.conjugated = impl.is_conj();
    if (!find_data(impl, impl.itemsize(), memory)) return std::nullopt;
  } catch (...) {
    return std::nullopt;
  }
  return memory;
}

LogicalOrder logical_order(const Memory& memory) {
  LogicalOrder order;
  std::int64_t logical = 1;
  for (std::size_t d = memory.sizes.size(); d-- > 0; logical *= memory.sizes[d]) {
    const Dim dim{memory.sizes[d], memory.strides[d], logical};
    if (dim.size == 1) continue;
    if (dim.stride == 0) {
      order.repeats *= dim.size;
      continue;
    }
    if (!order.dims.empty()) {
      Dim& inner = order.dims.back();
      if (dim.stride == inner.stride * inner.size && dim.logical == inner.logical * inner.size) {
        inner.size *= dim.size;
        continue;
      }
    }
    order.dims.push_back(dim);
  }
  if (order.dims.empty()) order.dims.push_back({1, 1, 1});
  std::reverse(order.dims.begin(), order.dims.end());
  return order;
}

void copy_elements(const Memory& memory, std::byte* into) {
  const std::size_t bytes = c10::elementSize(memory.type);
  if (memory.dense) {
    std::memcpy(into, memory.data, static_cast<std::size_t>(memory.numel) * bytes);
    return;
  }
  Dims dims;
  std::int64_t logical = 1;
  for (std::size_t d = memory.sizes.size(); d-- > 0; logical *= memory.sizes[d]) {
    dims.push_back({memory.sizes[d], memory.strides[d], logical});
  }
  std::reverse(dims.begin(), dims.end());
  for_each_position(dims, [&](std::int64_t offset, std::int64_t at) {
    std::memcpy(into + static_cast<std::size_t>(at) * bytes, memory.data + offset * static_cast<std::int64_t>(bytes),
                bytes);
    return true;
  });
}

SolidRuns solid_runs(const Memory& memory) {
  SolidRuns runs;
  if (memory.dense) {
    runs.length = memory.numel;
    return runs;
  }
  Dims dims;
  for (std::size_t d = 0; d < memory.sizes.size(); ++d) {
    if (memory.sizes[d] > 1) dims.push_back({memory.sizes[d], memory.strides[d], 0});
  }
  std::sort(dims.begin(), dims.end(), [](const Dim& a, const Dim& b) { return a.stride < b.stride; });
  for (const Dim& dim : dims) {
    // A step no longer than the run leaves no gap: also where it repeats (stride 0) or overlaps the run.
    if (dim.stride <= runs.length) {
      runs.length += (dim.size - 1) * dim.stride;
    } else {
      runs.outer.push_back(dim);
    }
  }
  std::reverse(runs.outer.begin(), runs.outer.end());
  return runs;
}

}  // namespace firstfault::measure
