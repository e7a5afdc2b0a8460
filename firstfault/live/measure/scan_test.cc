// scan() and its kin on every dtype and layout, against a plain loop and at::isfinite.
#include "firstfault/live/measure/scan.h"

#include <cfenv>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/record_function.h>
#include <c10/core/impl/COW.h>
#include <gtest/gtest.h>

namespace firstfault::measure {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kFloat8_e5m2};

NonFinite kind(double value) {
  return std::isnan(value) ? kNaN : value == kInf ? kPosInf : value == -kInf ? kNegInf : kFinite;
}

NonFinite kind(c10::complex<double> value) {
  const NonFinite real = kind(value.real()), imag = kind(value.imag());
  if (real == kNaN || imag == kNaN) return kNaN;
  return real != kFinite ? real : imag;
}

/// What scan_full should say, by at::isfinite's reading of each element in row-major order.
template <class Number>
FullScan by_plain_loop(const at::Tensor& tensor, at::ScalarType wide) {
  const at::Tensor flat = tensor.resolve_conj().resolve_neg().to(wide).reshape({-1}).contiguous();
  FullScan result;
  for (std::int64_t i = 0; i < flat.numel(); ++i) {
    const NonFinite bad = kind(flat.const_data_ptr<Number>()[i]);
    if (bad == kFinite) continue;
    (bad == kNaN ? result.counts.nan : bad == kPosInf ? result.counts.pos_inf : result.counts.neg_inf) += 1;
    if (result.first < 0) result.first = i, result.first_kind = bad;
  }
  return result;
}

FullScan by_plain_loop(const at::Tensor& tensor) {
  return tensor.is_complex() ? by_plain_loop<c10::complex<double>>(tensor, at::kComplexDouble)
                             : by_plain_loop<double>(tensor, at::kDouble);
}

void expect_scanned_right(const at::Tensor& tensor) {
  ASSERT_TRUE(can_scan(tensor));
  const FullScan expected = by_plain_loop(tensor), actual = scan_full(tensor);
  EXPECT_EQ(actual.counts, expected.counts) << tensor.toString() << tensor.sizes() << tensor.strides();
  EXPECT_EQ(actual.first, expected.first) << tensor.toString() << tensor.sizes() << tensor.strides();
  EXPECT_EQ(actual.first_kind, expected.first_kind);
  EXPECT_EQ(scan(tensor), expected.counts.bits()) << tensor.toString() << tensor.sizes() << tensor.strides();
}

at::Tensor grid(at::IntArrayRef sizes, at::ScalarType type = at::kFloat) {
  std::int64_t n = 1;
  for (const std::int64_t size : sizes) n *= size;
  return at::remainder(at::arange(n, at::kDouble), 7).sub(3).reshape(sizes).to(type);
}

at::Tensor with(at::Tensor tensor, std::int64_t memory_index, double value) {
  tensor.as_strided({1}, {1}, memory_index).fill_(value);
  return tensor;
}

TEST(Scan, says_which_way_a_contiguous_tensor_is_bad) {
  for (const at::ScalarType type : kTypes) {
    EXPECT_EQ(scan(grid({4, 100}, type)), kFinite);
    EXPECT_EQ(scan(with(grid({4, 100}, type), 399, kNan)), kNaN);
    EXPECT_EQ(scan(with(grid({4, 100}, type), 17, kInf)), kPosInf);
    EXPECT_EQ(scan(with(grid({4, 100}, type), 0, -kInf)), kNegInf);
    expect_scanned_right(with(with(grid({4, 100}, type), 5, -kInf), 200, kNan));
  }
}

TEST(Scan, finds_the_first_bad_element_in_logical_order_not_in_memory_order) {
  at::Tensor tensor = grid({3, 5});
  tensor.index_put_({at::tensor(2), at::tensor(0)}, kNan);  // first in the memory of the transpose
  tensor.index_put_({at::tensor(0), at::tensor(4)}, kInf);  // first in the memory of the tensor
  EXPECT_EQ(scan_full(tensor).first, 4);
  EXPECT_EQ(scan_full(tensor.t()).first, 2);
  EXPECT_EQ(scan_full(tensor.t()).first_kind, kNaN);
  expect_scanned_right(tensor.t());
}

TEST(Scan, reads_channels_last_tensors) {
  const at::Tensor tensor = grid({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast);
  EXPECT_EQ(scan(tensor), kFinite);
  tensor[1][2][0][3].fill_(kNan);
  tensor[1][0][3][4].fill_(kInf);
  expect_scanned_right(tensor);
}

TEST(Scan, counts_an_expanded_element_as_often_as_it_is_seen) {
  const at::Tensor tensor = with(grid({3, 1, 4}), 6, kNan).expand({5, 3, 1000, 4});
  const FullScan result = scan_full(tensor);
  EXPECT_EQ(result.counts.nan, 5000);
  EXPECT_EQ(result.first, 4002);
  expect_scanned_right(tensor);
}

TEST(Scan, finds_the_first_bad_element_far_inside_a_long_expanded_column) {
  const at::Tensor tensor = with(at::zeros({5000}), 4000, kNan).unsqueeze(1).expand({5000, 3});
  EXPECT_EQ(scan_full(tensor).first, 12000);
  expect_scanned_right(tensor);
}

TEST(Scan, reads_a_hugely_expanded_scalar_once) {
  const at::Tensor tensor = at::full({}, kNan).expand({1'000'000, 1'000'000});
  EXPECT_EQ(scan(tensor), kNaN);
  EXPECT_EQ(scan_full(tensor).counts.nan, 1'000'000'000'000);
}

TEST(Scan, does_not_see_what_a_slice_leaves_out) {
  const at::Tensor base = grid({20, 30});
  base[3].fill_(kNan);
  base.select(1, 7).fill_(kInf);
  EXPECT_EQ(scan(base.slice(0, 4).slice(1, 8)), kFinite);
  EXPECT_EQ(scan(base.slice(0, 0, 20, 2).slice(1, 0, 30, 2)), kFinite);
  expect_scanned_right(base.slice(0, 1, 20, 2).slice(1, 1, 30, 3));
  expect_scanned_right(base.slice(1, 5, 9));
  expect_scanned_right(base.select(1, 6));
}

TEST(Scan, reads_overlapping_windows) {
  const at::Tensor tensor = with(grid({64}), 30, kNan).unfold(0, 8, 3);
  EXPECT_EQ(scan_full(tensor).counts.nan, 3);
  expect_scanned_right(tensor);
  expect_scanned_right(with(grid({64}), 30, kNan).unfold(0, 8, 20));
}

TEST(Scan, reads_tensors_without_dims_and_without_elements) {
  expect_scanned_right(at::full({}, -kInf));
  expect_scanned_right(at::full({}, 1.0));
  expect_scanned_right(at::empty({0}));
  expect_scanned_right(at::empty({3, 0, 2}).transpose(0, 2));
}

TEST(Scan, tells_finite_extremes_from_inf) {
  const float greatest = std::numeric_limits<float>::max(), denormal = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(scan(at::tensor({greatest, -greatest, denormal, -denormal, -0.0f}).repeat({20})), kFinite);
}

TEST(Scan, knows_the_8_bit_floats) {
  for (const at::ScalarType type :
       {at::kFloat8_e5m2, at::kFloat8_e4m3fn, at::kFloat8_e5m2fnuz, at::kFloat8_e4m3fnuz, at::kFloat8_e8m0fnu}) {
    expect_scanned_right(at::arange(256, at::kByte).view(type));
  }
}

TEST(Scan, counts_a_complex_element_once) {
  const c10::complex<double> values[] = {{1, 2}, {kNan, kInf}, {-kInf, kInf}, {0, -kInf}, {3, kNan}, {kInf, 0}, {0, 0}};
  const at::Tensor wide = at::from_blob(const_cast<c10::complex<double>*>(values), {7}, at::kComplexDouble);
  for (const at::ScalarType type : {at::kComplexDouble, at::kComplexFloat, at::kComplexHalf}) {
    const at::Tensor tensor = wide.to(type);
    EXPECT_EQ(scan_full(tensor).counts, (Counts{.nan = 2, .pos_inf = 1, .neg_inf = 2}));
    expect_scanned_right(tensor);
    expect_scanned_right(tensor.slice(0, 0, 7, 2));
    expect_scanned_right(tensor.slice(0, 3, 4));
    EXPECT_EQ(scan(tensor.slice(0, 0, 7, 6)), kFinite);
  }
  expect_scanned_right(wide.conj());
  expect_scanned_right(wide.conj().slice(0, 3, 4));
  expect_scanned_right(at::_neg_view(wide.conj()));
}

TEST(Scan, sees_through_lazy_negation) {
  const at::Tensor tensor = at::_neg_view(at::tensor({1.0, kInf, 0.0, 5.0}));
  ASSERT_TRUE(tensor.is_neg());
  EXPECT_EQ(scan(tensor), kNegInf);
  expect_scanned_right(tensor);
  EXPECT_EQ(value_at(tensor, 3), -5.0);
  EXPECT_EQ(range_of(tensor).min, -5.0);
  EXPECT_EQ(range_of(tensor).max, 0.0);
}

TEST(Scan, cannot_look_at_what_holds_no_plain_floats) {
  const at::Tensor real = at::ones({2, 2});
  const at::Tensor unreadable[] = {
      at::Tensor(),
      at::ones({2}, at::kLong),
      at::ones({2}, at::kBool),
      at::empty({2}, at::TensorOptions(at::kMeta)),
      real.to_sparse(),
      real.to_sparse_csr(),
      at::quantize_per_tensor(real, 0.1, 0, at::kQInt8),
      at::_nested_tensor_from_tensor_list({real, real}),
      at::_efficientzerotensor({2}, at::kFloat),
      at::functorch::makeBatched(real, 0, 1),
  };
  for (const at::Tensor& tensor : unreadable) {
    EXPECT_FALSE(can_scan(tensor)) << tensor.toString();
    EXPECT_EQ(scan(tensor), kFinite);
    EXPECT_EQ(scan_full(tensor).first, -1);
    EXPECT_FALSE(range_of(tensor).min);
    EXPECT_TRUE(std::isnan(value_at(tensor, 0)));
  }
}

TEST(Scan, does_not_look_inside_a_python_subclass) {
  const at::Tensor tensor = with(grid({4}), 1, kNan);
  tensor.unsafeGetTensorImpl()->set_python_dispatch(true);
  EXPECT_FALSE(can_scan(tensor));
  tensor.unsafeGetTensorImpl()->set_python_dispatch(false);
  EXPECT_TRUE(can_scan(tensor));
}

TEST(Scan, does_not_read_a_storage_that_was_emptied_shrunk_or_closed) {
  const at::Tensor freed = at::ones({8});
  freed.storage().unsafeGetStorageImpl()->set_data_ptr(at::DataPtr());
  EXPECT_FALSE(can_scan(freed));
  const at::Tensor shrunk = at::ones({8}), inside = shrunk.slice(0, 0, 4), beyond = shrunk.slice(0, 0, 5, 2);
  shrunk.storage().unsafeGetStorageImpl()->set_nbytes(std::size_t{16});
  EXPECT_FALSE(can_scan(shrunk));
  EXPECT_TRUE(can_scan(inside));
  EXPECT_FALSE(can_scan(beyond));
  const at::Tensor closed = at::ones({8});
  closed.storage().unsafeGetStorageImpl()->release_data_and_set_meta_custom_data_ptr_error_msg_("closed");
  EXPECT_FALSE(can_scan(closed));
  EXPECT_EQ(scan(closed), kFinite);
}

TEST(Scan, leaves_a_copy_on_write_storage_shared) {
  const at::Tensor tensor = with(grid({10}), 3, kNan);
  const at::Tensor clone = at::_lazy_clone(tensor);
  expect_scanned_right(clone.slice(0, 0, 10, 3));
  EXPECT_EQ(scan(clone), kNaN);
  range_of(clone);
  value_at(clone, 3);
  EXPECT_TRUE(c10::impl::cow::is_cow_data_ptr(clone.storage().data_ptr()));
  EXPECT_TRUE(c10::impl::cow::is_cow_data_ptr(tensor.storage().data_ptr()));
}

TEST(Scan, reads_views_that_require_grad) {
  const at::Tensor leaf = with(grid({4, 4}), 9, kNan).requires_grad_();
  EXPECT_EQ(scan(leaf.t().slice(0, 1)), kNaN);
  EXPECT_EQ(scan_full(leaf.t()).first, 6);
}

TEST(Scan, is_seen_by_no_callback) {
  static int seen = 0;
  const at::Tensor tensor = with(grid({30, 30}), 9, kNan).requires_grad_().t();
  const at::Tensor complex = with(grid({30}), 9, kNan).to(at::kComplexFloat).conj();
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(
      [](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> { return ++seen, nullptr; }));
  seen = 0;
  scan(tensor), scan(complex);
  scan_full(tensor), scan_full(complex);
  range_of(tensor), range_of(complex);
  value_at(tensor, 5), value_at(complex, 5);
  EXPECT_EQ(seen, 0);
  at::removeCallback(handle);
}

TEST(Scan, raises_no_floating_point_flag) {
  const std::vector<std::uint32_t> words(100, 0x7F80'0001);
  const at::Tensor tensor = at::from_blob(const_cast<std::uint32_t*>(words.data()), {100}, at::kFloat);
  std::feclearexcept(FE_ALL_EXCEPT);
  EXPECT_EQ(scan(tensor), kNaN);
  EXPECT_EQ(scan_full(tensor).counts.nan, 100);
  EXPECT_FALSE(range_of(tensor).min);
  EXPECT_TRUE(std::isnan(value_at(tensor, 5)));
  EXPECT_EQ(std::fetestexcept(FE_INVALID | FE_OVERFLOW | FE_DIVBYZERO), 0);
}

TEST(Range, is_of_the_finite_elements) {
  const Range range = range_of(at::tensor({kNan, 2.0, -0.0, kInf, 0.0, -1.5}));
  EXPECT_EQ(range.min, -1.5);
  EXPECT_EQ(range.max, 2.0);
  EXPECT_EQ(range.zeros, 2);
  EXPECT_EQ(range.bad.counts, (Counts{.nan = 1, .pos_inf = 1}));
  EXPECT_EQ(range.bad.first, 0);
}

TEST(Range, says_zero_without_a_sign) {
  const Range range = range_of(at::full({40}, -0.0));
  EXPECT_FALSE(std::signbit(*range.min));
  EXPECT_FALSE(std::signbit(*range.max));
  EXPECT_EQ(range.zeros, 40);
}

TEST(Range, of_complex_numbers_has_zeros_but_no_order) {
  const Range range = range_of(at::tensor({0.0, 1.0, 0.0}).to(at::kComplexFloat));
  EXPECT_FALSE(range.min);
  EXPECT_EQ(range.zeros, 2);
}

TEST(ValueAt, follows_logical_order) {
  const at::Tensor tensor = at::arange(24, at::kFloat).reshape({2, 3, 4}).permute({2, 0, 1});
  const at::Tensor flat = tensor.reshape({-1}).contiguous();
  for (std::int64_t i = 0; i < 24; ++i) EXPECT_EQ(value_at(tensor, i), flat[i].item<double>());
  EXPECT_TRUE(std::isnan(value_at(tensor, 24)));
  EXPECT_TRUE(std::isnan(value_at(tensor, -1)));
  EXPECT_EQ(value_at(at::full({}, 3.0, at::kBFloat16), 0), 3.0);
}

/// A view with random sizes, strides (0 and overlapping ones too) and offset of random numbers, some of them bad.
at::Tensor random_view(std::mt19937& random, at::ScalarType type) {
  const auto below = [&](std::int64_t n) { return std::uniform_int_distribution<std::int64_t>(0, n - 1)(random); };
  std::vector<std::int64_t> sizes, strides;
  std::int64_t reach = 1;
  const std::int64_t dims = below(5);
  for (std::int64_t d = 0; d < dims; ++d) {
    sizes.push_back(1 + below(d == 0 ? 40 : 6));
    strides.push_back(below(3) ? (below(2) ? reach : below(2 * reach + 2)) : below(4));
    reach += (sizes.back() - 1) * strides.back();
  }
  for (std::size_t d = sizes.size(); d > 1; --d) {
    const auto other = static_cast<std::size_t>(below(static_cast<std::int64_t>(d)));
    std::swap(sizes[d - 1], sizes[other]), std::swap(strides[d - 1], strides[other]);
  }
  const std::int64_t offset = below(9), bad = below(6);
  const at::Tensor base = grid({offset + reach}, type);
  for (std::int64_t i = 0; i < bad; ++i) {
    const at::Tensor element = base[below(offset + reach)];
    const at::Tensor part = at::isComplexType(type) ? at::view_as_real(element)[below(2)] : element;
    part.fill_(below(2) ? kNan : i % 2 ? kInf : -kInf);
  }
  return base.as_strided(sizes, strides, offset);
}

void expect_range_right(const at::Tensor& tensor) {
  const Range range = range_of(tensor);
  const at::Tensor wide = tensor.to(at::kDouble), finite = wide.masked_select(at::isfinite(wide));
  EXPECT_EQ(range.min.has_value(), finite.numel() > 0);
  EXPECT_EQ(range.zeros, (finite == 0).sum().item<std::int64_t>());
  if (!range.min || finite.numel() == 0) return;
  EXPECT_EQ(range.min, finite.min().item<double>());
  EXPECT_EQ(range.max, finite.max().item<double>());
}

void expect_sizes_right(const at::Tensor& tensor) {
  const Looked looked = look(tensor);
  EXPECT_EQ(looked.bits, scan(tensor));
  if (std::isinf(looked.largest)) return;
  const at::Tensor wide = tensor.to(at::kDouble);
  EXPECT_EQ(looked.largest, wide.abs().max().item<double>());
  if (!looked.signs) EXPECT_GE(wide.min().item<double>(), 0);
}

TEST(Look, knows_the_sizes_of_dense_float32_tensors_only) {
  const at::Tensor dense = at::tensor({0.5F, -3.0F, 2.0F}), positive = at::tensor({0.5F, 3.0F});
  EXPECT_EQ(look(dense).largest, 3);
  EXPECT_TRUE(look(dense).signs);
  EXPECT_FALSE(look(positive).signs);
  EXPECT_TRUE(std::isinf(look(dense.to(at::kDouble)).largest));
  EXPECT_TRUE(std::isinf(look(at::ones({8, 8}).slice(1, 0, 3)).largest));
  EXPECT_TRUE(std::isinf(look(at::tensor({1.0F, NAN})).largest));
}

TEST(ScanProperty, random_views_agree_with_isfinite) {
  std::mt19937 random(3);
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kComplexFloat}) {
    for (int i = 0; i < 400 && !testing::Test::HasFailure(); ++i) {
      const at::Tensor tensor = random_view(random, type);
      EXPECT_EQ(scan(tensor) == kFinite, at::isfinite(tensor).all().item<bool>());
      expect_scanned_right(tensor);
      expect_sizes_right(tensor);
      if (!tensor.is_complex()) expect_range_right(tensor);
    }
  }
}

}  // namespace
}  // namespace firstfault::measure
