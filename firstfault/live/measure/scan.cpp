// Dispatches on dtype and walks the memory: any order for scan(), row-major for what counts and indexes.
#include "firstfault/live/measure/scan.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <ATen/EmptyTensor.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>

#include "firstfault/live/measure/elements.h"
#include "firstfault/live/measure/memory.h"

namespace firstfault::measure {
namespace {

constexpr std::int64_t kChunk = kMaxRangeElements;

Signs signs_of(const Memory& memory) noexcept { return {memory.negated, memory.negated != memory.conjugated}; }

template <class Element>
std::uint8_t bits_of_column(const std::byte* at, Dim dim) noexcept {
  std::uint8_t bits = kFinite;
  for (std::int64_t i = 0; i < dim.size; ++i) {
    bits |= Element::kind(at + i * dim.stride * static_cast<std::int64_t>(Element::kBytes), {});
  }
  return bits;
}

// Of the words in memory, without the lazy bits; a complex element counts by each of its parts.
template <class Element>
std::uint8_t raw_bits(const Memory& memory) {
  if (memory.dense) return Element::bits(memory.data, static_cast<std::size_t>(memory.numel));
  SolidRuns runs = solid_runs(memory);
  std::optional<Dim> column;
  if (runs.length == 1 && !runs.outer.empty()) column = runs.outer.pop_back_val();
  std::uint8_t bits = kFinite;
  for_each_position(runs.outer, [&](std::int64_t offset, std::int64_t) {
    const std::byte* at = memory.data + offset * static_cast<std::int64_t>(Element::kBytes);
    bits |= column ? bits_of_column<Element>(at, *column) : Element::bits(at, static_cast<std::size_t>(runs.length));
    return bits != kAnyBad;
  });
  return bits;
}

void add(Counts& counts, NonFinite kind, std::int64_t times) noexcept {
  if (kind == kNaN) counts.nan += times;
  if (kind == kPosInf) counts.pos_inf += times;
  if (kind == kNegInf) counts.neg_inf += times;
}

// Elements in row-major order, in chunks of a stride: the last dim of the logical order in pieces.
template <class Element, class Visit>
void for_each_chunk(const Memory& memory, const LogicalOrder& order, Visit&& visit) {
  const Dim inner = order.dims.back();
  const auto outer = c10::ArrayRef<Dim>(order.dims).slice(0, order.dims.size() - 1);
  for_each_position(outer, [&](std::int64_t offset, std::int64_t logical) {
    for (std::int64_t i = 0; i < inner.size; i += kChunk) {
      const auto at = (offset + i * inner.stride) * static_cast<std::int64_t>(Element::kBytes);
      const Dim chunk{std::min(kChunk, inner.size - i), inner.stride, inner.logical};
      visit(memory.data + at, chunk, logical + i * inner.logical);
    }
    return true;
  });
}

template <class Element>
bool known_finite(const std::byte* at, Dim chunk) noexcept {
  if constexpr (Element::kHasKernels) {
    return chunk.stride == 1 && !Element::any(at, static_cast<std::size_t>(chunk.size));
  } else {
    return false;
  }
}

template <class Element>
void count_chunk(const std::byte* at, Dim chunk, std::int64_t logical, Signs signs, FullScan& into) noexcept {
  for (std::int64_t i = 0; i < chunk.size; ++i, at += chunk.stride * static_cast<std::int64_t>(Element::kBytes)) {
    const NonFinite kind = Element::kind(at, signs);
    if (kind == kFinite) continue;
    add(into.counts, kind, 1);
    if (into.first < 0) into.first = logical + i * chunk.logical, into.first_kind = kind;
  }
}

void repeat(FullScan& scan, std::int64_t times) noexcept {
  scan.counts.nan *= times;
  scan.counts.pos_inf *= times;
  scan.counts.neg_inf *= times;
}

template <class Element>
FullScan count(const Memory& memory) {
  FullScan result;
  const LogicalOrder order = logical_order(memory);
  for_each_chunk<Element>(memory, order, [&](const std::byte* at, Dim chunk, std::int64_t logical) {
    if (!known_finite<Element>(at, chunk)) count_chunk<Element>(at, chunk, logical, signs_of(memory), result);
  });
  repeat(result, order.repeats);
  return result;
}

template <class Element>
void add_to_range(const std::byte* at, Dim chunk, Range& range) noexcept {
  for (std::int64_t i = 0; i < chunk.size; ++i, at += chunk.stride * static_cast<std::int64_t>(Element::kBytes)) {
    if (Element::kind(at, {}) != kFinite) continue;
    range.zeros += Element::is_zero(at);
    if constexpr (!Element::kComplex) {
      const double value = Element::value(at);
      if (!range.min || value < *range.min) range.min = value;
      if (!range.max || value > *range.max) range.max = value;
    }
  }
}

template <class Element>
void add_finite_to_range(const std::byte* at, std::int64_t n, Range& range) noexcept {
  using Format = typename Element::Format;
  using Word = typename Format::Word;
  WordRange<Format> words;
  finite_range<Format>(at, static_cast<std::size_t>(n), words);
  const double low = number<Format>(static_cast<Word>(ordered<Format>(static_cast<Word>(words.min))));
  const double high = number<Format>(static_cast<Word>(ordered<Format>(static_cast<Word>(words.max))));
  range.min = std::min(range.min.value_or(low), low);
  range.max = std::max(range.max.value_or(high), high);
  range.zeros += words.zeros;
}

template <class Element>
Range measure_range(const Memory& memory) {
  Range range;
  const LogicalOrder order = logical_order(memory);
  for_each_chunk<Element>(memory, order, [&](const std::byte* at, Dim chunk, std::int64_t logical) {
    const bool finite = known_finite<Element>(at, chunk);
    if (!finite) count_chunk<Element>(at, chunk, logical, signs_of(memory), range.bad);
    if constexpr (Element::kHasKernels && !Element::kComplex) {
      if (finite) return add_finite_to_range<Element>(at, chunk.size, range);
    }
    add_to_range<Element>(at, chunk, range);
  });
  repeat(range.bad, order.repeats);
  range.zeros *= order.repeats;
  return range;
}

// Adding 0.0 turns -0.0 into 0.0: nobody wants to read "min -0".
void finish(Range& range, bool negate) noexcept {
  if (!range.min) return;
  if (negate) {
    std::swap(range.min, range.max);
    *range.min = -*range.min, *range.max = -*range.max;
  }
  *range.min += 0.0, *range.max += 0.0;
}

}  // namespace

bool can_scan(const at::Tensor& tensor) noexcept { return memory_of(tensor).has_value(); }

std::uint8_t scan(const at::Tensor& tensor) {
  const std::optional<Memory> memory = memory_of(tensor);
  if (!memory || memory->numel == 0) return kFinite;
  return with_element(memory->type, [&](auto element) -> std::uint8_t {
    using Element = decltype(element);
    const std::uint8_t bits = raw_bits<Element>(*memory);
    if (bits == kFinite) return bits;
    if (Element::kComplex) return count<Element>(*memory).counts.bits();
    if (!memory->negated) return bits;
    return static_cast<std::uint8_t>((bits & kNaN) | (bits & kPosInf ? kNegInf : 0) | (bits & kNegInf ? kPosInf : 0));
  });
}

Looked look(const at::Tensor& tensor) {
  const std::optional<Memory> memory = memory_of(tensor);
  const bool plain = memory && memory->type == at::kFloat && memory->dense && memory->numel > 0 && !memory->negated;
  if (!plain) return {.bits = scan(tensor)};
  Magnitude<Fp32> magnitude;
  dispatched::magnitude(memory->data, static_cast<std::size_t>(memory->numel), magnitude);
  if (!magnitude.finite()) return {.bits = scan(tensor)};
  return {kFinite, number<Fp32>(magnitude.largest), magnitude.signs};
}

FullScan scan_full(const at::Tensor& tensor) {
  const std::optional<Memory> memory = memory_of(tensor);
  if (!memory || memory->numel == 0) return {};
  return with_element(memory->type, [&](auto element) { return count<decltype(element)>(*memory); });
}

Range range_of(const at::Tensor& tensor) {
  const std::optional<Memory> memory = memory_of(tensor);
  if (!memory || memory->numel == 0) return {};
  Range range = with_element(memory->type, [&](auto element) { return measure_range<decltype(element)>(*memory); });
  finish(range, memory->negated);
  return range;
}

double value_at(const at::Tensor& tensor, std::int64_t logical_index) {
  const std::optional<Memory> memory = memory_of(tensor);
  if (!memory || logical_index < 0 || logical_index >= memory->numel) return std::numeric_limits<double>::quiet_NaN();
  std::int64_t offset = 0;
  for (std::size_t d = memory->sizes.size(); d-- > 0; logical_index /= memory->sizes[d]) {
    offset += logical_index % memory->sizes[d] * memory->strides[d];
  }
  return with_element(memory->type, [&](auto element) {
    using Element = decltype(element);
    const double value = Element::value(memory->data + offset * static_cast<std::int64_t>(Element::kBytes));
    return memory->negated && !Element::kComplex ? -value : value;
  });
}

std::optional<double> integer_at(const at::Tensor& tensor, std::int64_t logical_index) {
  const bool plain = tensor.defined() && tensor.layout() == at::kStrided && tensor.is_cpu() && tensor.has_storage() &&
                     !tensor.key_set().has(c10::DispatchKey::Python) && !tensor.is_neg();
  if (!plain || tensor.storage().data() == nullptr || logical_index < 0 || logical_index >= tensor.numel()) return {};
  std::int64_t offset = tensor.storage_offset();
  for (std::int64_t d = tensor.dim(); d-- > 0; logical_index /= tensor.size(d)) {
    offset += logical_index % tensor.size(d) * tensor.stride(d);
  }
  if (static_cast<std::size_t>(offset + 1) * tensor.itemsize() > tensor.storage().nbytes()) return {};
  const auto read = [&](auto type) {
    return static_cast<double>(static_cast<const decltype(type)*>(tensor.storage().data())[offset]);
  };
  switch (tensor.scalar_type()) {
    case at::kLong: return read(std::int64_t{});
    case at::kInt: return read(std::int32_t{});
    case at::kShort: return read(std::int16_t{});
    case at::kChar: return read(std::int8_t{});
    case at::kByte: return read(std::uint8_t{});
    case at::kBool: return read(bool{});
    default: return std::nullopt;
  }
}

at::Tensor explicit_values(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() == at::kStrided || !tensor.is_cpu()) return {};
  const auto* impl = tensor.unsafeGetTensorImpl();
  if (const auto* coo = dynamic_cast<const at::SparseTensorImpl*>(impl)) return coo->values();
  if (const auto* compressed = dynamic_cast<const at::SparseCsrTensorImpl*>(impl)) return compressed->values();
  return {};
}

at::Tensor copy_of(const at::Tensor& tensor) {
  const std::optional<Memory> memory = memory_of(tensor);
  if (!memory || memory->negated || memory->conjugated) return {};
  at::Tensor copy = memory->dense ? at::detail::empty_strided_cpu(memory->sizes, memory->strides, memory->type)
                                  : at::detail::empty_cpu(memory->sizes, memory->type);
  if (memory->numel > 0) copy_elements(*memory, static_cast<std::byte*>(copy.mutable_data_ptr()));
  return copy;
}

}  // namespace firstfault::measure
