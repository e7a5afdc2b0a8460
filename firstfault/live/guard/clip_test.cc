// Clipping on the inputs on which others go wrong, and on every kind of gradient.
#include "firstfault/live/guard/clip.h"

#include <cmath>
#include <limits>
#include <sstream>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include "firstfault/base/error.h"
#include "firstfault/live/guard/adaptive_clip.h"

namespace firstfault {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

at::Tensor with_gradient(const at::Tensor& gradient) {
  at::Tensor parameter = at::zeros(gradient.sizes(), gradient.options().layout(at::kStrided));
  parameter.mutable_grad() = gradient;
  return parameter;
}

std::vector<at::Tensor> with_gradients(const std::vector<at::Tensor>& gradients) {
  std::vector<at::Tensor> parameters;
  for (const at::Tensor& gradient : gradients) parameters.push_back(with_gradient(gradient));
  return parameters;
}

// Both ways that an option can choose on the CPU.
class Clip : public testing::TestWithParam<bool> {
 protected:
  ClipOptions options(OnNonfinite policy = OnNonfinite::error, double p = 2) const {
    return {.norm_type = p, .on_nonfinite = policy, .by_aten = GetParam()};
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, Clip, testing::Values(false, true),
                         [](const auto& way) { return way.param ? "by_aten" : "in_memory"; });

TEST_P(Clip, of_many_large_finite_gradients_has_a_finite_norm_and_keeps_the_direction) {
  std::vector<at::Tensor> gradients;
  for (int i = 0; i < 128; ++i) gradients.push_back(at::full({1}, i % 2 ? -5e19f : 5e19f));
  const auto parameters = with_gradients(gradients);
  auto record = clip_grad_norm_(parameters, 1, options());
  EXPECT_NEAR(record.norm / (5e19 * std::sqrt(128.0)), 1, 1e-6);
  for (int i = 0; i < 128; ++i) {
    EXPECT_NEAR(gradients[i].item<double>(), (i % 2 ? -1 : 1) / std::sqrt(128.0), 1e-6);
  }
}

TEST_P(Clip, does_not_write_gradients_within_the_limit) {
  const auto gradient = at::full({100}, 0.1f);
  const auto before = gradient._version();
  const auto record = clip_grad_norm_({with_gradient(gradient)}, 1.5, options());
  EXPECT_FALSE(record.clipped());
  EXPECT_EQ(record.coefficient, 1);
  EXPECT_EQ(gradient._version(), before);
}

TEST_P(Clip, tells_autograd_of_its_write) {
  const auto gradient = at::full({100}, 1.0f);
  const auto before = gradient._version();
  EXPECT_TRUE(clip_grad_norm_({with_gradient(gradient)}, 1, options()).clipped());
  EXPECT_GT(gradient._version(), before);
}

TEST_P(Clip, refuses_a_nan_by_the_parameters_name_and_changes_nothing) {
  const auto good = at::full({4}, 10.0f), bad = at::full({6}, 1.0f);
  bad[2] = kNan;
  auto named = options();
  named.names = {"first.weight", "last\x1b[2J.bias"};
  try {
    clip_grad_norm_(with_gradients({good, bad}), 1, named);
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("1 of 2 gradients is not finite: last\\x1b[2J.bias (NaN in 1 of 6 elements)"),
              std::string::npos)
        << text;
  }
  EXPECT_TRUE(at::equal(good, at::full({4}, 10.0f)));
}

TEST_P(Clip, skips_all_where_it_is_told_to) {
  const auto good = at::full({4}, 10.0f), bad = at::full({6}, kInf, at::kFloat);
  auto record = clip_grad_norm_(with_gradients({good, bad}), 1, options(OnNonfinite::skip));
  record.read();
  EXPECT_TRUE(record.skipped);
  EXPECT_FALSE(record.clipped());
  EXPECT_EQ(record.norm, 20);
  ASSERT_EQ(record.nonfinite.size(), 1u);
  EXPECT_EQ(record.nonfinite[0].index, 1);
  EXPECT_TRUE(at::equal(good, at::full({4}, 10.0f)));
  EXPECT_TRUE(at::equal(bad, at::full({6}, kInf, at::kFloat)));
}

TEST_P(Clip, drops_the_bad_and_clips_the_rest_where_it_is_told_to) {
  const auto good = at::full({4}, 10.0f), bad = at::full({6}, kNan, at::kFloat), inf = at::full({2}, -kInf, at::kFloat);
  auto record = clip_grad_norm_(with_gradients({bad, good, inf}), 2, options(OnNonfinite::zero));
  record.read();
  EXPECT_TRUE(record.zeroed);
  EXPECT_EQ(record.nonfinite.size(), 2u);
  EXPECT_TRUE(at::allclose(good, at::full({4}, 1.0f)));
  EXPECT_TRUE(at::equal(bad, at::zeros({6})));
  EXPECT_TRUE(at::equal(inf, at::zeros({2})));
}

TEST_P(Clip, takes_any_p_and_mixed_dtypes) {
  for (const double p : {0.5, 1.0, 1.7, 2.0, 3.0, kInf}) {
    std::vector<at::Tensor> gradients{at::randn({7, 5}), at::randn({300}, at::kDouble), at::randn({9}).to(at::kHalf),
                                      at::randn({3, 3}).to(at::kBFloat16), at::randn({4}, at::kComplexFloat)};
    double expected = 0;
    std::vector<at::Tensor> flat;
    for (const auto& g : gradients) flat.push_back(g.abs().to(at::kDouble).flatten());
    expected = at::cat(flat).norm(p).item<double>();
    const auto before = gradients[0].clone();
    auto record = clip_grad_norm_(with_gradients(gradients), 0.25, options(OnNonfinite::error, p));
    EXPECT_NEAR(record.norm / expected, 1, 1e-6) << p;
    EXPECT_TRUE(at::allclose(gradients[0], before * (0.25 / (expected + 1e-6)))) << p;
    EXPECT_EQ(gradients[2].scalar_type(), at::kHalf);
  }
}

TEST_P(Clip, reaches_every_layout) {
  const auto wide = at::randn({6, 10});
  const auto sliced = wide.slice(1, 0, 10, 3);
  const auto untouched = wide.slice(1, 1, 10, 3).clone();
  const auto turned = at::randn({5, 4}).t();
  const auto scalar = at::full({}, 3.0f), empty = at::empty({0, 4});
  const auto negative = at::randn({4}, at::kComplexFloat).conj();
  std::vector<at::Tensor> gradients{sliced, turned, scalar, empty, negative};
  double squares = 0;
  for (const auto& g : gradients) squares += g.abs().square().sum().item<double>();
  const auto record = clip_grad_norm_(with_gradients(gradients), 1, options());
  EXPECT_NEAR(record.norm, std::sqrt(squares), 1e-5);
  double after = 0;
  for (const auto& g : gradients) after += g.abs().square().sum().item<double>();
  EXPECT_NEAR(after, 1, 1e-5);
  EXPECT_TRUE(at::equal(wide.slice(1, 1, 10, 3), untouched));
}

TEST_P(Clip, sums_repeated_indices_of_a_sparse_gradient) {
  const auto indices = at::tensor({1, 1, 3}, at::kLong).unsqueeze(0);
  const auto values = at::tensor({3.0f, 0.0f, 0.0f, 4.0f, 0.0f, 12.0f}).reshape({3, 2});
  const auto sparse = at::sparse_coo_tensor(indices, values, {5, 2});
  const auto record = clip_grad_norm_({with_gradient(sparse)}, 6.5, options());
  EXPECT_NEAR(record.norm, 13, 1e-5);
  EXPECT_TRUE(at::allclose(sparse.to_dense()[3], at::tensor({0.0f, 6.0f}), 1e-4));
  EXPECT_TRUE(at::allclose(sparse.to_dense()[1], at::tensor({1.5f, 2.0f}), 1e-4));
}

TEST_P(Clip, counts_a_gradient_that_is_given_twice_once) {
  const auto parameter = with_gradient(at::full({4}, 1.0f));
  const auto record = clip_grad_norm_({parameter, parameter}, 1, options());
  EXPECT_EQ(record.norm, 2);
  EXPECT_TRUE(at::allclose(parameter.grad(), at::full({4}, 0.5f)));
}

TEST_P(Clip, leaves_out_what_holds_no_numbers) {
  const auto meta = at::zeros({3}, at::TensorOptions().device(at::kMeta));
  at::Tensor on_meta = at::zeros({3}, at::TensorOptions().device(at::kMeta));
  on_meta.mutable_grad() = meta;
  const auto record =
      clip_grad_norm_({at::zeros({2}), on_meta, at::Tensor(), with_gradient(at::full({4}, 1.0f))}, 1, options());
  EXPECT_EQ(record.norm, 2);
  ASSERT_EQ(record.largest.size(), 1u);
  EXPECT_EQ(record.largest[0].index, 3);
  EXPECT_EQ(clip_grad_norm_({}, 1, options()).norm, 0);
}

TEST_P(Clip, says_who_made_up_the_norm_and_how_far_the_step_would_have_gone) {
  auto named = options();
  named.names = {"a", "b", "c", "d"};
  named.lr = 0.5;
  const auto record = clip_grad_norm_(
      with_gradients({at::full({1}, 1.0f), at::full({1}, 8.0f), at::full({1}, 4.0f), at::full({1}, 0.0f)}), 1, named);
  EXPECT_EQ(record.norm, 9);
  EXPECT_EQ(record.step, 4.5);
  ASSERT_EQ(record.largest.size(), 3u);
  EXPECT_EQ(record.largest[0].name, "b");
  EXPECT_NEAR(record.largest[0].share, 64.0 / 81, 1e-12);
  EXPECT_EQ(record.largest[1].name, "c");
  std::ostringstream text;
  text << record;
  EXPECT_EQ(text.str(), "norm 9 (79 % b), clipped to 1 (x 0.111111)");
}

TEST_P(Clip, by_value_gives_the_angle_that_it_turned_the_gradient_by) {
  const auto first = at::full({1}, 3.0f), second = at::full({1}, 1.0f);
  const auto record = clip_grad_value_(with_gradients({first, second}), 1, options());
  EXPECT_NEAR(record.angle, std::atan2(1, 1) - std::atan2(1, 3), 1e-7);
  EXPECT_EQ(first.item<float>(), 1);
  EXPECT_EQ(record.clipped_parts, 1);
  EXPECT_NEAR(record.norm, std::sqrt(10), 1e-9);
}

TEST(ClipInMemory, by_value_of_huge_numbers_still_knows_the_angle) {
  const auto gradient = at::tensor({1e300, -1e300, 1e290}, at::kDouble);
  const auto record = clip_grad_value_({with_gradient(gradient)}, 1e299);
  EXPECT_NEAR(record.angle, 0, 1e-4);
  EXPECT_TRUE(at::allclose(gradient, at::tensor({1e299, -1e299, 1e290}, at::kDouble)));
}

TEST_P(Clip, by_value_bounds_the_sum_of_repeated_indices) {
  const auto indices = at::tensor({1, 1, 3}, at::kLong).unsqueeze(0);
  const auto sparse = at::sparse_coo_tensor(indices, at::tensor({2.0f, 2.0f, 1.0f}), {5});
  clip_grad_value_({with_gradient(sparse)}, 3, options());
  EXPECT_TRUE(at::equal(sparse.to_dense(), at::tensor({0.0f, 3.0f, 0.0f, 1.0f, 0.0f})));
}

TEST_P(Clip, by_value_writes_nothing_where_one_is_not_finite) {
  const auto good = at::full({2}, 5.0f), bad = at::full({2}, kInf, at::kFloat);
  EXPECT_THROW(clip_grad_value_(with_gradients({good, bad}), 1, options()), Error);
  EXPECT_TRUE(at::equal(good, at::full({2}, 5.0f)));
  const auto record = clip_grad_value_(with_gradients({good, bad}), 1, options(OnNonfinite::zero));
  EXPECT_TRUE(record.zeroed);
  EXPECT_TRUE(at::equal(good, at::ones({2})));
  EXPECT_TRUE(at::equal(bad, at::zeros({2})));
}

TEST_P(Clip, by_unit_is_that_of_the_paper) {
  const auto weight = at::randn({5, 3, 2}), gradient = at::randn({5, 3, 2});
  const auto bias = at::randn({4}), bias_gradient = at::randn({4});
  weight[1] = 0;
  const auto unit = [](const at::Tensor& w, const at::Tensor& g, at::IntArrayRef dims) {
    const auto most = w.norm(2, dims, true).clamp_min(1e-3) * 0.1;
    const auto norm = g.norm(2, dims, true);
    return at::where(norm > most, g * (most / norm.clamp_min(1e-6)), g);
  };
  const auto expected = unit(weight, gradient, {1, 2}), expected_bias = unit(bias, bias_gradient, {0});
  at::Tensor first = weight, second = bias;
  first.mutable_grad() = gradient;
  second.mutable_grad() = bias_gradient;
  const auto record = clip_grad_units_({first, second}, {.clip_factor = 0.1}, options());
  EXPECT_TRUE(at::allclose(gradient, expected));
  EXPECT_TRUE(at::allclose(bias_gradient, expected_bias));
  EXPECT_EQ(record.parts, 6);
  EXPECT_GT(record.angle, 0);
}

TEST_P(Clip, by_unit_reaches_rows_of_a_sparse_gradient) {
  const auto indices = at::tensor({1, 1, 3}, at::kLong).unsqueeze(0);
  at::Tensor weight = at::ones({5, 4});
  weight.mutable_grad() = at::sparse_coo_tensor(indices, at::full({3, 4}, 1.0f), {5, 4});
  const auto record = clip_grad_units_({weight}, {.clip_factor = 0.5}, options());
  EXPECT_EQ(record.parts, 2);
  const auto dense = weight.grad().to_dense();
  EXPECT_TRUE(at::allclose(dense[1], at::full({4}, 0.5f)));
  EXPECT_TRUE(at::allclose(dense[3], at::full({4}, 0.5f)));
}

TEST_P(Clip, refuses_what_is_no_limit_and_no_norm) {
  EXPECT_THROW(clip_grad_norm_({}, -1, options()), Error);
  EXPECT_THROW(clip_grad_norm_({}, kNan, options()), Error);
  EXPECT_THROW(clip_grad_norm_({}, 1, options(OnNonfinite::error, 0)), Error);
  EXPECT_THROW(clip_grad_value_({}, -1, options()), Error);
  EXPECT_THROW(clip_grad_units_({}, {.clip_factor = -1}, options()), Error);
}

TEST(ClipInMemory, has_the_norm_of_1e8_elements_to_1e_minus_6) {
  const auto gradient = at::full({100'000'000}, 0.1f);
  const auto record = clip_grad_norm_({with_gradient(gradient)}, kInf);
  EXPECT_NEAR(record.norm / (static_cast<double>(0.1f) * 1e4), 1, 1e-9);
}

TEST(ClipInMemory, has_the_same_norm_on_one_thread_and_on_two) {
  std::vector<at::Tensor> gradients;
  for (int i = 0; i < 5; ++i) gradients.push_back(at::randn({300'000}));
  const auto threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto one = clip_grad_norm_(with_gradients(gradients), kInf).norm;
  at::set_num_threads(2);
  EXPECT_EQ(clip_grad_norm_(with_gradients(gradients), kInf).norm, one);
  EXPECT_NEAR(clip_grad_norm_(with_gradients(gradients), 1).norm, one, 0);
  EXPECT_NEAR(clip_grad_norm_(with_gradients(gradients), 2).norm, 1, 1e-5);
  at::set_num_threads(threads);
}

TEST(ClipInMemory, knows_the_norm_of_doubles_whose_squares_leave_the_range) {
  EXPECT_NEAR(clip_grad_norm_({with_gradient(at::full({4}, 1e200, at::kDouble))}, kInf).norm, 2e200, 1e190);
  EXPECT_NEAR(clip_grad_norm_({with_gradient(at::full({4}, 1e-200, at::kDouble))}, kInf).norm / 2e-200, 1, 1e-9);
}

// Reads of a device's number by the host.
struct Reads {
  static inline int count;
  at::CallbackHandle handle;
  Reads() {
    count = 0;
    handle = at::addThreadLocalCallback(at::RecordFunctionCallback([](const at::RecordFunction& record) {
      if (std::string_view(record.name()) == "aten::_local_scalar_dense") ++count;
      return std::unique_ptr<at::ObserverContext>();
    }));
  }
  ~Reads() { at::removeCallback(handle); }
};

TEST(ClipElsewhere, asks_the_device_for_nothing_where_it_need_not_decide) {
  const auto gradient = at::full({4}, 1.0f);
  const auto parameters = with_gradients({gradient, at::full({4}, 1.0f, at::kHalf)});
  ClipOptions options{.on_nonfinite = OnNonfinite::skip, .by_aten = true};
  ClipRecord record;
  {
    const Reads reads;
    record = clip_grad_norm_(parameters, 1, options);
    EXPECT_EQ(Reads::count, 0);
  }
  EXPECT_TRUE(record.pending());
  EXPECT_TRUE(at::allclose(gradient, at::full({4}, 1.0f) / std::sqrt(8.0)));
  record.read();
  EXPECT_NEAR(record.norm, std::sqrt(8.0), 1e-9);
  EXPECT_TRUE(record.clipped());
}

TEST(ClipOfRanks, uses_the_norm_of_all_of_them) {
  const auto gradient = at::full({4}, 1.0f);
  GradientNorm norm({gradient});
  EXPECT_EQ(norm.total(), 2);
  const auto record = norm.clip(1, 4);
  EXPECT_EQ(record.norm, 4);
  EXPECT_TRUE(at::allclose(gradient, at::full({4}, 0.25f)));
}

TEST(ClipOfRanks, does_as_the_others_where_one_of_them_is_not_finite) {
  const auto gradient = at::full({4}, 1.0f);
  EXPECT_THROW(GradientNorm({gradient}).clip(1, kNan), Error);
  EXPECT_TRUE(GradientNorm({gradient}, {.on_nonfinite = OnNonfinite::skip}).clip(1, kNan).skipped);
  EXPECT_TRUE(at::equal(gradient, at::full({4}, 1.0f)));
}

TEST(AdaptiveClip, follows_the_runs_own_norms_and_goes_on_after_nan) {
  AdaptiveClip clip;
  const auto step = [&](double norm) {
    const auto gradient = at::full({1}, norm, at::kDouble);
    return clip.clip({with_gradient(gradient)}, {.on_nonfinite = OnNonfinite::skip});
  };
  for (int i = 0; i < 16; ++i) EXPECT_FALSE(step(1 + 0.01 * (i % 5)).clipped());
  EXPECT_NEAR(clip.limit(), 1.02 * std::exp(0.15), 0.01);
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(step(kNan).skipped);
  EXPECT_NEAR(clip.limit(), 1.02 * std::exp(0.15), 0.01);
  const auto record = step(50);
  EXPECT_TRUE(record.clipped());
  EXPECT_NEAR(record.norm * record.coefficient, 1.02 * std::exp(0.15), 0.01);
  EXPECT_FALSE(step(1.01).clipped());
}

TEST(AdaptiveClip, follows_a_lasting_rise_slowly_and_comes_back_from_a_checkpoint) {
  AdaptiveClip clip;
  for (int i = 0; i < 64; ++i) clip.remember(1);
  for (int i = 0; i < 31; ++i) clip.remember(100);
  EXPECT_LT(clip.limit(), 2);
  for (int i = 0; i < 2000; ++i) clip.remember(100);
  EXPECT_GT(clip.limit(), 99);
  AdaptiveClip other;
  other.restore(clip.history());
  EXPECT_EQ(other.limit(), clip.limit());
}

struct Ledger : ClipListener {
  std::vector<double> norms;
  void heard(const ClipRecord& record, at::TensorList) override { norms.push_back(record.norm); }
};

TEST(ClipListener, hears_of_every_clip_until_it_is_removed) {
  Ledger ledger;
  add_clip_listener(ledger);
  clip_grad_norm_({with_gradient(at::full({4}, 1.0f))}, 1);
  clip_grad_value_({with_gradient(at::full({1}, 3.0f))}, 1);
  remove_clip_listener(ledger);
  clip_grad_norm_({with_gradient(at::full({4}, 1.0f))}, 1);
  EXPECT_EQ(ledger.norms, (std::vector<double>{2, 3}));
}

}  // namespace
}  // namespace firstfault
