// The rule, the reasons and the order of calls. tests/guard compares 500 steps with torch's own.
#include "firstfault/live/guard/grad_scaler.h"

#include <limits>

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "firstfault/base/error.h"

namespace firstfault {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Training {
  torch::nn::Linear model{2, 1};
  torch::optim::SGD optimizer{model->parameters(), torch::optim::SGDOptions(0.1)};

  // The loss' gradient is `slope` for each weight.
  bool step(GradScaler& scaler, double slope) {
    optimizer.zero_grad();
    scaler.scale((model->weight * slope).sum() + model->bias.sum()).backward();
    return scaler.step(optimizer);
  }
};

TEST(GradScaler, steps_as_if_nothing_had_been_scaled) {
  Training training;
  GradScaler scaler;
  const auto before = training.model->weight.detach().clone();
  EXPECT_TRUE(training.step(scaler, 2));
  EXPECT_TRUE(at::allclose(training.model->weight.detach(), before - 0.2));
}

TEST(GradScaler, leaves_a_step_out_and_names_the_parameter) {
  Training training;
  GradScaler scaler;
  scaler.name(*training.model);
  const auto before = training.model->weight.detach().clone();
  EXPECT_FALSE(training.step(scaler, kInf));
  scaler.update();
  EXPECT_TRUE(at::equal(training.model->weight.detach(), before));
  EXPECT_EQ(scaler.get_scale(), 32768);
  ASSERT_TRUE(scaler.skipped());
  EXPECT_EQ(scaler.skipped()->scale, 65536);
  ASSERT_EQ(scaler.skipped()->nonfinite.size(), 1u);
  EXPECT_EQ(scaler.skipped()->nonfinite[0].name, "weight");
  EXPECT_EQ(scaler.skipped()->nonfinite[0].counts.pos_inf, 2);
}

TEST(GradScaler, grows_after_the_interval_and_starts_to_count_again_after_a_skip) {
  Training training;
  GradScaler scaler({.init_scale = 8, .growth_interval = 3});
  std::vector<double> scales;
  for (const double slope : {1.0, 1.0, 1.0, 1.0, 1.0, kInf, 1.0, 1.0, 1.0}) {
    training.step(scaler, slope);
    scaler.update();
    scales.push_back(scaler.get_scale());
  }
  EXPECT_EQ(scales, (std::vector<double>{8, 8, 16, 16, 16, 8, 8, 8, 16}));
}

TEST(GradScaler, does_not_fall_below_its_floor_and_says_that_it_is_stuck) {
  Training training;
  GradScaler scaler({.init_scale = 4});
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(scaler.stuck(), i > 2) << i;
    training.step(scaler, kInf);
    scaler.update();
  }
  EXPECT_EQ(scaler.get_scale(), 1);
  EXPECT_EQ(scaler.skips_in_a_row(), 10);
  EXPECT_EQ(scaler.skips(), 10);
  training.step(scaler, 1);
  EXPECT_FALSE(scaler.stuck());
  EXPECT_EQ(scaler.steps(), 11);
}

TEST(GradScaler, refuses_calls_in_the_wrong_order) {
  Training training;
  GradScaler scaler;
  EXPECT_THROW(scaler.step(training.optimizer), Error);
  EXPECT_THROW(scaler.update(), Error);
  scaler.scale(training.model->weight.sum()).backward();
  scaler.unscale_(training.optimizer);
  EXPECT_THROW(scaler.unscale_(training.optimizer), Error);
  scaler.step(training.optimizer);
  EXPECT_THROW(scaler.step(training.optimizer), Error);
  EXPECT_THROW(scaler.unscale_(training.optimizer), Error);
  scaler.update();
  EXPECT_THROW(scaler.update(), Error);
  EXPECT_THROW(GradScaler({.growth_factor = 1}), Error);
  EXPECT_THROW(GradScaler({.backoff_factor = 1}), Error);
}

TEST(GradScaler, refuses_gradients_in_float16) {
  Training training;
  training.model->to(at::kHalf);
  GradScaler scaler;
  EXPECT_THROW(training.step(scaler, 1), Error);
}

TEST(GradScaler, goes_on_from_its_state) {
  Training training;
  GradScaler scaler({.init_scale = 8, .growth_interval = 3}), resumed;
  for (int i = 0; i < 2; ++i) training.step(scaler, 1), scaler.update();
  resumed.load(scaler.state());
  for (GradScaler* one : {&scaler, &resumed}) {
    training.step(*one, 1);
    one->update();
    EXPECT_EQ(one->get_scale(), 16);
    EXPECT_EQ(one->state().growth_tracker, 0);
  }
}

TEST(GradScaler, does_nothing_where_it_is_not_enabled) {
  Training training;
  GradScaler scaler({.enabled = false});
  EXPECT_TRUE(training.step(scaler, kInf));
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), 1);
  EXPECT_TRUE(training.model->weight.isinf().all().item<bool>());
}

}  // namespace
}  // namespace firstfault
