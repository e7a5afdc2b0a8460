// libFuzzer: a tensor of any readable dtype, layout and content; scan() and its kin against ATen's isfinite and isnan.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <limits>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include "firstfault/live/measure/scan.h"

namespace firstfault::measure {
namespace {

/// What of the input says what the tensor is; the rest fills it. tests/fuzz/seeds.py writes the same.
struct Header {
  std::uint8_t type, lazy_bits, offset, dims, sizes[5], strides[5], order, fill;
};

struct Format {
  at::ScalarType type;
  std::size_t word;        ///< bytes of a real number
  std::uint64_t exponent;  ///< its mask; 0: an 8-bit float, all of whose words are tried
};

constexpr Format kFormats[] = {
    {at::kFloat, 4, 0x7F80'0000},
    {at::kDouble, 8, 0x7FF0'0000'0000'0000},
    {at::kHalf, 2, 0x7C00},
    {at::kBFloat16, 2, 0x7F80},
    {at::kComplexHalf, 2, 0x7C00},
    {at::kComplexFloat, 4, 0x7F80'0000},
    {at::kComplexDouble, 8, 0x7FF0'0000'0000'0000},
    {at::kFloat8_e5m2, 1, 0},
    {at::kFloat8_e4m3fn, 1, 0},
    {at::kFloat8_e5m2fnuz, 1, 0},
    {at::kFloat8_e4m3fnuz, 1, 0},
    {at::kFloat8_e8m0fnu, 1, 0},
};
constexpr std::int64_t kMostElements = 1 << 13, kMostReach = 1 << 16;

struct Shape {
  std::vector<std::int64_t> sizes, strides;
  std::int64_t reach = 1;  ///< elements of memory from the first to the last
};

std::int64_t size_of(std::uint8_t code) {
  constexpr std::int64_t long_ones[] = {31, 64, 100, 2047, 2049, 5000};  // around the chunk of 2048 elements
  return code >= 250 ? long_ones[code - 250] : code % 9;
}

// Packed, expanded, with gaps as a slice leaves them, or any small step, overlapping ones too.
std::int64_t stride_of(std::uint8_t code, std::int64_t reach) {
  switch (code % 8) {
    case 5: return 0;
    case 6: return reach * (2 + code / 8 % 4);
    case 7: return code / 8;
    default: return reach;
  }
}

Shape shape_of(const Header& header) {
  Shape shape;
  std::int64_t numel = 1;
  for (int d = 0; d < header.dims % 6; ++d) {
    std::int64_t size = size_of(header.sizes[d]), stride = stride_of(header.strides[d], shape.reach);
    if (numel * size > kMostElements) size = 1;
    const std::int64_t steps = std::max<std::int64_t>(size - 1, 0);
    if (shape.reach + steps * stride > kMostReach) stride = 0;
    numel *= size;
    shape.reach += steps * stride;
    shape.sizes.push_back(size), shape.strides.push_back(stride);
  }
  for (std::size_t d = shape.sizes.size(), order = header.order; d > 1; order /= d, --d) {
    std::swap(shape.sizes[d - 1], shape.sizes[order % d]), std::swap(shape.strides[d - 1], shape.strides[order % d]);
  }
  return shape;
}

std::uint64_t special_word(const Format& format, std::uint8_t which) {
  const std::uint64_t e = format.exponent, sign = std::uint64_t{1} << (8 * format.word - 1);
  if (!e) return which;
  const std::uint64_t words[] = {e,    e | sign, e | 1, e | sign | 1, ~std::uint64_t{0}, e - 1, (e - 1) | sign,
                                 sign, 1,        0};
  return words[which % std::size(words)];
}

// Either the payload over and over, or one byte over and over with special words (place, place, which) in between.
void fill(std::vector<std::byte>& memory, const Format& format, std::uint8_t how, const std::uint8_t* payload,
          std::size_t size) {
  if (how % 2 && size > 0) {
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = std::byte{payload[i % size]};
    return;
  }
  std::fill(memory.begin(), memory.end(), std::byte{size > 0 ? payload[0] : std::uint8_t{0}});
  const std::size_t words = memory.size() / format.word;
  for (std::size_t i = 1; i + 2 < size; i += 3) {
    const std::size_t place = (payload[i] | std::size_t{payload[i + 1]} << 8) % words;
    const std::uint64_t word = special_word(format, payload[i + 2]);  // its low bytes: the machine is little-endian
    std::memcpy(memory.data() + place * format.word, &word, format.word);
  }
}

struct Case {
  std::vector<std::byte> memory;  // ends where the tensor does, so that the address sanitizer sees what lies behind
  at::Tensor plain;               ///< without the lazy bits
  bool negated = false, conjugated = false;
  at::Tensor tensor;
};

Case make_case(const Header& header, const std::uint8_t* payload, std::size_t size) {
  Case made;
  const Format& format = kFormats[header.type % std::size(kFormats)];
  const Shape shape = shape_of(header);
  const std::int64_t offset = header.offset % 16;
  made.memory.resize(static_cast<std::size_t>(offset + shape.reach) * c10::elementSize(format.type));
  fill(made.memory, format, header.fill, payload, size);
  const auto view = [&] {
    return at::for_blob(made.memory.data(), shape.sizes)
        .strides(shape.strides)
        .storage_offset(offset)
        .options(at::TensorOptions(format.type))
        .make_tensor();
  };
  made.plain = view(), made.tensor = view();
  made.negated = header.lazy_bits & 1;
  made.conjugated = (header.lazy_bits & 2) && at::isComplexType(format.type);
  made.tensor.unsafeGetTensorImpl()->_set_neg(made.negated);
  if (made.conjugated) made.tensor.unsafeGetTensorImpl()->_set_conj(true);
  return made;
}

[[noreturn]] void fail(const Case& made, const char* what) {
  std::cerr << "scan_fuzz: " << what << " differs for " << c10::toString(made.plain.scalar_type()) << ' '
            << made.plain.sizes() << " strides " << made.plain.strides() << " offset " << made.plain.storage_offset()
            << (made.negated ? " negated" : "") << (made.conjugated ? " conjugated" : "") << std::endl;
  std::abort();
}

template <class T>
void expect_equal(const Case& made, const char* what, const T& actual, const T& expected) {
  if (actual == expected) return;
  std::cerr << "scan_fuzz: " << +actual << " where " << +expected << " is right\n";
  fail(made, what);
}

void expect_same_number(const Case& made, const char* what, double actual, double expected) {
  if (std::isnan(actual) && std::isnan(expected)) return;
  expect_equal(made, what, actual, expected);
}

/// The elements in row-major order, as ATen converts them: doubles, or two for each complex number.
struct Elements {
  at::Tensor wide, finite, nan;
  std::int64_t count, parts;
  const double* values;
  const bool *is_finite, *is_nan;

  explicit Elements(const Case& made) : count(made.plain.numel()), parts(made.plain.is_complex() ? 2 : 1) {
    wide = made.plain.to(parts == 2 ? at::kComplexDouble : at::kDouble);
    if (made.conjugated) wide = wide.conj_physical();
    if (made.negated) wide = wide.neg();
    wide = wide.contiguous();
    const at::Tensor numbers = at::from_blob(wide.data_ptr(), {count, parts}, at::kDouble);
    finite = numbers.isfinite(), nan = numbers.isnan();
    values = static_cast<const double*>(wide.const_data_ptr());
    is_finite = finite.const_data_ptr<bool>(), is_nan = nan.const_data_ptr<bool>();
  }

  NonFinite kind(std::int64_t i) const {
    const std::int64_t begin = i * parts, end = begin + parts;
    for (std::int64_t part = begin; part < end; ++part) {
      if (is_nan[part]) return kNaN;
    }
    for (std::int64_t part = begin; part < end; ++part) {
      if (!is_finite[part]) return values[part] > 0 ? kPosInf : kNegInf;
    }
    return kFinite;
  }
  // A magnitude; NaN where a part is, also beside an Inf, over which hypot would pass.
  double number(std::int64_t i) const {
    if (parts == 1) return values[i];
    const bool nan = is_nan[2 * i] || is_nan[2 * i + 1];
    return nan ? std::numeric_limits<double>::quiet_NaN() : std::hypot(values[2 * i], values[2 * i + 1]);
  }
};

Range by_plain_loop(const Elements& elements) {
  Range range;
  for (std::int64_t i = 0; i < elements.count; ++i) {
    if (const NonFinite kind = elements.kind(i); kind != kFinite) {
      (kind == kNaN ? range.bad.counts.nan : kind == kPosInf ? range.bad.counts.pos_inf : range.bad.counts.neg_inf)++;
      if (range.bad.first < 0) range.bad.first = i, range.bad.first_kind = kind;
      continue;
    }
    const double* parts = elements.values + i * elements.parts;
    range.zeros += parts[0] == 0 && parts[elements.parts - 1] == 0;
    if (elements.parts == 2) continue;
    range.min = std::min(range.min.value_or(parts[0]), parts[0]);
    range.max = std::max(range.max.value_or(parts[0]), parts[0]);
  }
  return range;
}

void check_full_scan(const Case& made, const FullScan& actual, const FullScan& expected) {
  expect_equal(made, "the count of NaN", actual.counts.nan, expected.counts.nan);
  expect_equal(made, "the count of Inf", actual.counts.pos_inf, expected.counts.pos_inf);
  expect_equal(made, "the count of -Inf", actual.counts.neg_inf, expected.counts.neg_inf);
  expect_equal(made, "the first index", actual.first, expected.first);
  expect_equal(made, "the first kind", int{actual.first_kind}, int{expected.first_kind});
}

void check_range(const Case& made, const Range& actual, const Range& expected) {
  check_full_scan(made, actual.bad, expected.bad);
  expect_equal(made, "the number of zeros", actual.zeros, expected.zeros);
  expect_equal(made, "whether there is a min", actual.min.has_value(), expected.min.has_value());
  expect_equal(made, "whether there is a max", actual.max.has_value(), expected.max.has_value());
  if (!expected.min) return;
  expect_equal(made, "the min", *actual.min, *expected.min);
  expect_equal(made, "the max", *actual.max, *expected.max);
  expect_equal(made, "a zero's sign", (*actual.min == 0 && std::signbit(*actual.min)), false);
  expect_equal(made, "a zero's sign", (*actual.max == 0 && std::signbit(*actual.max)), false);
}

void check_values(const Case& made, const Elements& elements) {
  const std::int64_t numel = elements.count;
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  expect_same_number(made, "the value before the first", value_at(made.tensor, -1), kNone);
  expect_same_number(made, "the value after the last", value_at(made.tensor, numel), kNone);
  const std::int64_t step = 1 + numel / 97;
  for (std::int64_t i = 0; i < numel; i += step) {
    expect_same_number(made, "a value", value_at(made.tensor, i), elements.number(i));
  }
}

void check_copy(const Case& made) {
  if (made.negated || made.conjugated) return;  // not asked for
  const at::Tensor copy = copy_of(made.tensor);
  if (!copy.defined() || copy.sizes() != made.plain.sizes()) fail(made, "the copy's shape");
  const at::Tensor actual = copy.contiguous(), expected = made.plain.contiguous();
  if (expected.nbytes() == 0) return;
  if (std::memcmp(actual.const_data_ptr(), expected.const_data_ptr(), expected.nbytes()) != 0) fail(made, "the copy");
}

void check(const Case& made) {
  if (!can_scan(made.tensor)) fail(made, "whether it can be scanned");
  const Elements elements(made);
  const Range expected = by_plain_loop(elements);
  expect_equal(made, "scan()", scan(made.tensor), expected.bad.counts.bits());
  check_full_scan(made, scan_full(made.tensor), expected.bad);
  check_range(made, range_of(made.tensor), expected);
  check_values(made, elements);
  check_copy(made);
}

}  // namespace
}  // namespace firstfault::measure

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace firstfault::measure;
  Header header{};
  if (size < sizeof(header)) return -1;
  std::memcpy(&header, data, sizeof(header));
  check(make_case(header, data + sizeof(header), size - sizeof(header)));
  return 0;
}
