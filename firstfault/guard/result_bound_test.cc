#include "firstfault/guard/result_bound.h"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

namespace firstfault::guard {
namespace {

UpdateNumbers adam(double lr = 1e-3) {
  return {.rule = UpdateRule::adam, .lr = lr, .eps = 1e-8, .beta1 = 0.9, .beta2 = 0.999};
}

UpdateNumbers sgd(double lr, double momentum) { return {.rule = UpdateRule::sgd, .lr = lr, .momentum = momentum}; }

UpdateNumbers plain(UpdateRule rule) { return {.rule = rule, .lr = 0.01, .eps = 1e-10, .alpha = 0.99}; }

bool is_known(const HeldSizes& sizes) {
  return std::isfinite(sizes.parameter) && std::isfinite(sizes.moment) && std::isfinite(sizes.square);
}

TEST(ResultBound, SgdAddsTheStepThatItTakes) {
  const auto after = after_step(sgd(0.5, 0), {2, 0, 0}, 4);
  EXPECT_NEAR(after.parameter, 2 + 0.5 * 4, 1e-3);
  EXPECT_NEAR(after_step(sgd(0.5, 0.9), {2, 10, 0}, 4).moment, 0.9 * 10 + 4, 1e-2);
}

TEST(ResultBound, WeightDecayMakesTheGradientLargerAndDecoupledOneTheParameter) {
  UpdateNumbers group = sgd(1, 0);
  group.weight_decay = 3;
  EXPECT_NEAR(after_step(group, {2, 0, 0}, 1).parameter, 2 + (1 + 3 * 2), 1e-2);
  UpdateNumbers decoupled = adam(1);
  decoupled.weight_decay = 3, decoupled.decoupled = true, decoupled.eps = 1;
  EXPECT_NEAR(after_step(decoupled, {2, 0, 0}, 0).parameter, 2 * 2, 1e-2);  // times |1 - 1 * 3|
}

TEST(ResultBound, NothingIsKnownOfWhatWasNotReadNorOfAnotherRule) {
  EXPECT_FALSE(is_known(after_step(adam(), HeldSizes::unknown(), 1)));
  EXPECT_FALSE(is_known(after_step({}, {1, 1, 1}, 1)));
  EXPECT_EQ(update_rule("Adafactor"), UpdateRule::unknown);
  EXPECT_EQ(update_rule("AdamW"), UpdateRule::adam);
}

TEST(ResultBound, NumbersThatCanBreakAResultAreNotBelieved) {
  const HeldSizes usual{1, 1, 1};
  ASSERT_TRUE(is_known(after_step(adam(), usual, 1)));
  auto group = adam();
  group.eps = 0;  // 0 / 0
  EXPECT_FALSE(is_known(after_step(group, usual, 1)));
  group = adam();
  group.beta2 = 1;  // its bias correction is 0
  EXPECT_FALSE(is_known(after_step(group, usual, 1)));
  group = adam(NAN);
  EXPECT_FALSE(is_known(after_step(group, usual, 1)));
  EXPECT_FALSE(is_known(after_step(adam(), usual, 1e20)));  // its square is Inf
  EXPECT_FALSE(is_known(after_step(adam(), usual, NAN)));
  EXPECT_FALSE(is_known(after_step(sgd(1e30, 0), usual, 1e10)));
  EXPECT_FALSE(is_known(after_step(sgd(1e39, 0), usual, 0)));  // no float32 holds it
  group = adam();
  group.eps = 1e-30;
  EXPECT_FALSE(is_known(after_step(group, usual, 1)));
}

TEST(ResultBound, ASquareThatMayBeNegativeIsNotKnown) {
  HeldSizes sizes;
  sizes.add(Held::square, 1, false);
  EXPECT_TRUE(is_known(sizes));
  sizes.add(Held::square, 1, true);
  EXPECT_FALSE(is_known(sizes));
}

TEST(ResultBound, StateIsToldApartByItsName) {
  EXPECT_EQ(held_as("exp_avg"), Held::moment);
  EXPECT_EQ(held_as("exp_avg_sq"), Held::square);
  EXPECT_EQ(held_as("momentum_buffer"), Held::moment);
  EXPECT_EQ(held_as("grad_avg"), Held::other);
  HeldSizes sizes;
  sizes.add(held_as("grad_avg"), 1, false);
  EXPECT_FALSE(is_known(sizes));
}

TEST(ResultBound, AStepIsKnownUntilTheBoundHasGrownTooFar) {
  ResultBound bound;
  EXPECT_FALSE(bound.step({adam()}, 1));  // nothing was read
  bound.read({1, 0, 0});
  EXPECT_TRUE(bound.step({adam()}, 1));
  EXPECT_FALSE(bound.step({adam()}, 1e20));
  EXPECT_FALSE(bound.step({adam()}, 1));  // what the last one wrote is not known
  bound.read({1, 1, 1});
  EXPECT_FALSE(bound.step({adam(), {}}, 1));
  bound.read({1, 1, 1});
  bound.forget();
  EXPECT_FALSE(bound.step({adam()}, 1));
  bound.read({1, 0, 0});
  int steps = 0;
  while (steps < 1000 && bound.step({sgd(10, 0)}, 1e15)) ++steps;
  EXPECT_EQ(steps, 99);  // of 1e16 each, up to 1e18, with a little for rounding
}

TEST(ResultBound, AMomentThatAStepLeavesAloneIsNotTakenToDecay) {
  ResultBound bound;
  bound.read({1, 1e17, 0});
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(bound.step({sgd(1, 1e-4)}, 0));
  EXPECT_FALSE(bound.step({sgd(1e4, 1e-4)}, 0));  // the parameter had no gradient until now
}

TEST(ResultBound, ResultsAreReadNowAndThenAndBeforeASnapshot) {
  int reads = 0;
  for (int step = 0; step < 800; ++step) reads += reads_anyway(step, step, 100);
  EXPECT_EQ(reads, 100 + 8);
  EXPECT_TRUE(reads_anyway(3, 99, 100));
  EXPECT_TRUE(reads_anyway(5, 5, 1));
}

// One element of each optimizer in float, by the formulas of torch.optim's documentation.
struct Element {
  float p = 0, m = 0, v = 0;
  int t = 0;

  void step(const UpdateNumbers& n, float g) {
    ++t;
    const auto lr = static_cast<float>(n.lr), eps = static_cast<float>(n.eps);
    if (!n.decoupled) g += static_cast<float>(n.weight_decay) * p;
    switch (n.rule) {
      case UpdateRule::sgd:
        m = t == 1 ? g : static_cast<float>(n.momentum) * m + static_cast<float>(1 - n.dampening) * g;
        p -= lr * (n.momentum != 0 ? m : g);
        break;
      case UpdateRule::adam: {
        if (n.decoupled) p *= 1 - lr * static_cast<float>(n.weight_decay);
        const auto b1 = static_cast<float>(n.beta1), b2 = static_cast<float>(n.beta2);
        m = b1 * m + (1 - b1) * g;
        v = b2 * v + (1 - b2) * g * g;
        const auto one = static_cast<float>(1 - std::pow(n.beta1, t)),
                   two = static_cast<float>(1 - std::pow(n.beta2, t));
        p -= lr / one * m / (std::sqrt(v) / std::sqrt(two) + eps);
        break;
      }
      case UpdateRule::rmsprop:
        v = static_cast<float>(n.alpha) * v + static_cast<float>(1 - n.alpha) * g * g;
        p -= lr * g / (std::sqrt(v) + eps);
        break;
      case UpdateRule::adagrad:
        v += g * g;
        p -= lr * g / (std::sqrt(v) + eps);
        break;
      case UpdateRule::unknown: break;
    }
  }
};

TEST(ResultBound, NoElementEverExceedsIt) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> exponent(-12, 12), share(0, 0.999), one(-1, 1);
  int known = 0;
  for (int run = 0; run < 4000; ++run) {
    UpdateNumbers numbers = run % 4 == 0   ? sgd(1e-2, share(random))
                            : run % 4 == 1 ? adam(std::pow(10, exponent(random) / 4))
                                           : plain(run % 4 == 2 ? UpdateRule::rmsprop : UpdateRule::adagrad);
    if (run % 3 == 0) numbers.weight_decay = share(random);
    if (run % 8 == 1) numbers.decoupled = true;
    if (numbers.rule == UpdateRule::adam) numbers.beta1 = share(random), numbers.beta2 = share(random);
    const double largest = std::pow(10, exponent(random));
    Element element;
    element.p = static_cast<float>(one(random));
    ResultBound bound;
    bound.read({std::abs(element.p), 0, 0});
    HeldSizes sizes{std::abs(element.p), 0, 0};
    for (int t = 0; t < 8; ++t) {
      const double gradient = largest * one(random);
      const bool fits = bound.step({numbers}, std::abs(gradient));
      sizes = after_step(numbers, sizes, std::abs(gradient));
      ASSERT_EQ(fits, is_known(sizes));
      element.step(numbers, static_cast<float>(gradient));
      if (!fits) break;
      ++known;
      ASSERT_LE(std::abs(element.p), sizes.parameter) << run << " at " << t;
      ASSERT_LE(std::abs(element.m), sizes.moment * (1 + 1e-6)) << run << " at " << t;
      ASSERT_LE(element.v, sizes.square) << run << " at " << t;
    }
  }
  EXPECT_GT(known, 20'000);
}

}  // namespace
}  // namespace firstfault::guard
