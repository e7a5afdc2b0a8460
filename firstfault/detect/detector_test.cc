// Series that must raise an event, series that must not, and which event it is.
#include "firstfault/detect/detector.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "firstfault/base/error.h"
#include "firstfault/detect/hand_made.h"

namespace firstfault::detect {
namespace {

using namespace hand_made;

const std::vector<std::int64_t> kMatrix = {10, 10};  // L2 norm: 10 * rms

Site gradient() { return site(SiteRole::gradient, "fc.weight", 0, kMatrix); }
Site parameter() { return site(SiteRole::parameter, "fc.weight", 0, kMatrix); }
Site loss() { return site(SiteRole::loss, "loss"); }
Site input() { return site(SiteRole::input, "input 0", -1, {64, 8}); }

Health bad() {
  Health one = health(1);
  one.nonfinite = 3;
  return one;
}

Health moved(double rms, double update) {
  Health one = health(rms);
  one.update = static_cast<float>(update);
  return one;
}

Health unit(double saturated, double dead) {
  Health one = health(0.5);
  one.saturated = static_cast<float>(saturated);
  one.dead = static_cast<float>(dead);
  return one;
}

TEST(DetectorOptions, ThatMakeNoSenseAreRefused) {
  EXPECT_THROW(Detector({.threshold_vanishing = 0}), Error);
  EXPECT_THROW(Detector({.threshold_exploding = NAN}), Error);
  EXPECT_THROW(Detector({.threshold_vanishing = 2, .threshold_exploding = 1}), Error);
  try {
    Detector({.threshold_exploding = -1});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::bad_value);
    EXPECT_NE(std::string(error.what()).find("threshold_exploding must be a number above 0, not -1"),
              std::string::npos);
  }
}

// Gradients.

TEST(Gradient, AnExplosionIsOneEventWithItsValueBaselineAndConfidence) {
  OneSite run(gradient());
  run.steps(30, 0.05);
  for (const double rms : {0.2, 1.0, 8.0, 60.0, 500.0, 4e3, 3e4}) run.step(rms);
  ASSERT_EQ(run.transitions().size(), 1U);
  const Transition& event = run.transitions()[0];
  EXPECT_EQ(event.step, 34);  // norm 5000: above 1e3 and 1e3 times as large as usual
  EXPECT_EQ(event.site, 0);
  EXPECT_EQ(event.from, Condition::healthy);
  EXPECT_EQ(event.to, Condition::exploding);
  EXPECT_NEAR(event.value, 5000, 1e-3);
  EXPECT_NEAR(event.baseline, 0.5, 1e-3);
  EXPECT_GT(event.confidence, 0.85);
}

TEST(Gradient, NeedsBothTheAbsoluteThresholdAndTheBaseline) {
  OneSite large(gradient());  // 1e4 is usual here: a loss that is a sum
  Noise noise(1);
  for (int i = 0; i < 500; ++i) large.step(1e3 * noise.factor(0.5));
  OneSite small(gradient());  // a thousand times more, and still small
  small.steps(50, 1e-3);
  small.steps(50, 1);
  EXPECT_TRUE(large.transitions().empty());
  EXPECT_TRUE(small.transitions().empty());
}

TEST(Gradient, TheThresholdIsTheUsers) {
  OneSite run(gradient(), {.threshold_exploding = 5});
  run.steps(50, 1e-3);
  run.steps(2, 1);
  ASSERT_EQ(run.transitions().size(), 1U);
}

TEST(Gradient, GrowthTooSlowForTheWindowIsSeen) {
  OneSite run(gradient());
  for (int i = 0; i < 700; ++i) run.step(0.1 * std::pow(1.02, i));
  ASSERT_EQ(run.transitions().size(), 1U);
  EXPECT_NEAR(run.transitions()[0].baseline, std::pow(1.02, 7.5), 0.01);
  EXPECT_LT(run.transitions()[0].value, 2000);
}

TEST(Gradient, AnExplosionFromTheFirstStepsIsSeenWithoutABaseline) {
  OneSite run(gradient());
  for (const double rms : {0.1, 5.0, 300.0, 5e4, 1e7}) run.step(rms);
  ASSERT_EQ(run.transitions().size(), 1U);
  EXPECT_EQ(run.transitions()[0].step, 4);
  EXPECT_LT(run.transitions()[0].confidence, 0.9);
  OneSite at_once(gradient());
  at_once.step(3e5);
  ASSERT_EQ(at_once.transitions().size(), 1U);
  EXPECT_TRUE(std::isnan(at_once.transitions()[0].baseline));
}

TEST(Gradient, ALargeOneInTheFirstStepsRaisesNothing) {
  OneSite run(gradient());
  for (const double rms : {0.1, 0.1, 150.0, 0.2, 0.1}) run.step(rms);
  EXPECT_TRUE(run.transitions().empty());
}

TEST(Gradient, ASingleNoisyStepRaisesNothing) {
  OneSite run(gradient());
  run.steps(100, 2);
  run.step(250);  // norm 2500: 125 times as large as usual
  run.steps(100, 2);
  EXPECT_TRUE(run.transitions().empty());
}

TEST(Gradient, FlappingAroundTheThresholdIsOneEvent) {
  OneSite run(gradient());
  run.steps(50, 0.5);
  for (int i = 0; i < 200; ++i) run.step(i % 2 ? 90 : 110);  // norm 900 and 1100
  EXPECT_TRUE(run.transitions().empty());
  run.steps(2, 110);
  for (int i = 0; i < 200; ++i) run.step(i % 3 ? 60 : 200);
  EXPECT_EQ(run.transitions().size(), 1U);
}

TEST(Gradient, WhatWasFlaggedDoesNotBecomeUsual) {
  OneSite run(gradient());
  run.steps(50, 0.1);
  run.steps(300, 1e4);
  EXPECT_EQ(run.transitions().size(), 1U);
  run.steps(50, 0.1);
  ASSERT_EQ(run.transitions().size(), 2U);
  EXPECT_EQ(run.transitions()[1].to, Condition::healthy);
  EXPECT_NEAR(run.transitions()[1].baseline, 1, 1e-3);
  EXPECT_EQ(run.transitions()[1].step, 354);
}

TEST(Gradient, NaNIsAnEventAtOnceAndPoisonsNothing) {
  OneSite run(gradient());
  run.steps(50, 0.1);
  for (int i = 0; i < 20; ++i) run.step(bad());
  ASSERT_EQ(run.transitions().size(), 1U);
  EXPECT_EQ(run.transitions()[0].step, 50);
  EXPECT_EQ(run.transitions()[0].to, Condition::non_finite);
  EXPECT_EQ(run.transitions()[0].value, 3);
  EXPECT_EQ(run.transitions()[0].confidence, 1);
  run.steps(10, 0.1);
  EXPECT_EQ(run.transitions().back().to, Condition::healthy);
  run.steps(2, 1e3);
  EXPECT_EQ(run.transitions().back().to, Condition::exploding);
  EXPECT_NEAR(run.transitions().back().baseline, 1, 1e-3);
}

TEST(Gradient, NaNInEveryOtherStepIsOneEvent) {
  OneSite run(gradient());
  for (int i = 0; i < 100; ++i) run.step(i % 2 ? bad() : health(0.1));
  EXPECT_EQ(run.transitions().size(), 1U);
}

TEST(Gradient, AnExplosionThatEndsInNaNIsTwoEvents) {
  OneSite run(gradient());
  run.steps(20, 0.1);
  run.steps(3, 1e5);
  run.step(bad());
  ASSERT_EQ(run.transitions().size(), 2U);
  EXPECT_EQ(run.transitions()[1].from, Condition::exploding);
  EXPECT_EQ(run.transitions()[1].to, Condition::non_finite);
}

TEST(Gradient, StepsThatAGradScalerSkippedAreNotLookedAt) {
  OneSite run(gradient());
  for (int i = 0; i < 5; ++i) run.skipped(bad());
  run.steps(50, 0.1);
  run.skipped(health(1e8));
  run.skipped(bad());
  EXPECT_TRUE(run.transitions().empty());
}

/// A model of `layers` weights, whose gradients the test gives per step.
class Layers {
 public:
  explicit Layers(int layers) {
    for (int i = 0; i < layers; ++i)
      sites_.push_back(site(SiteRole::gradient, "layers." + std::to_string(i) + ".weight", i, kMatrix));
  }
  template <class F>
  void steps(int count, F rms) {
    for (int k = 0; k < count; ++k, ++row_.step) {
      row_.sites.clear();
      for (std::size_t i = 0; i < sites_.size(); ++i) row_.sites.push_back(health(rms(k, static_cast<int>(i))));
      const auto changed = detector_.observe(sites_, row_);
      transitions_.insert(transitions_.end(), changed.begin(), changed.end());
    }
  }
  std::vector<Site>& sites() { return sites_; }
  const std::vector<Transition>& transitions() const { return transitions_; }

 private:
  std::vector<Site> sites_;
  Detector detector_;
  StepRow row_;
  std::vector<Transition> transitions_;
};

TEST(Vanishing, InADeepSigmoidNetTheFirstLayersAreNamed) {
  Layers run(12);
  Noise noise(2);
  run.steps(200, [&](int, int layer) { return 0.05 * std::pow(0.1, 11 - layer) * noise.factor(0.5); });
  ASSERT_FALSE(run.transitions().empty());
  std::vector<int> named;
  for (const Transition& event : run.transitions()) {
    EXPECT_EQ(event.to, Condition::vanishing);
    named.push_back(event.site);
  }
  std::sort(named.begin(), named.end());
  // Layer 5 has a norm of 5e-7; layer 6 of 5e-6, which is small but above the threshold.
  EXPECT_EQ(named, (std::vector<int>{0, 1, 2, 3, 4, 5}));
  EXPECT_GE(run.transitions()[0].step, 9);
  EXPECT_LE(run.transitions()[0].step, 20);
}

TEST(Vanishing, ConvergenceToALossOfOneMillionthOfAMillionthIsNone) {
  Layers run(6);
  Noise noise(3);
  run.steps(4000, [&](int k, int layer) {
    return 0.1 * std::pow(0.3, 5 - layer) * std::pow(10.0, -k / 300.0) * noise.factor(0.4);
  });
  EXPECT_TRUE(run.transitions().empty());
}

TEST(Vanishing, ExactZerosByDesignAreNone) {
  Layers run(3);
  run.steps(300, [](int k, int layer) { return layer == 1 && k < 200 ? 0.0 : 0.1; });
  EXPECT_TRUE(run.transitions().empty());
}

TEST(Vanishing, WhatABiasDoesInFrontOfANormalisationIsNone) {
  Layers run(2);
  run.sites().push_back(site(SiteRole::gradient, "conv.bias", 0, {10}));
  Noise noise(4);
  run.steps(300, [&](int, int i) { return i == 2 ? 1e-10 * noise.factor(0.5) : 0.1; });
  EXPECT_TRUE(run.transitions().empty());
}

TEST(Vanishing, AGradientOnItsWayUpIsNone) {
  Layers run(2);  // a residual branch that starts at a factor of 1e-6 and opens
  run.steps(100, [](int k, int layer) { return layer == 0 ? 1e-9 * std::pow(2.0, k) : 0.1; });
  EXPECT_EQ(std::count_if(run.transitions().begin(), run.transitions().end(),
                          [](const Transition& event) { return event.to == Condition::vanishing; }),
            0);
}

// Parameters.

TEST(Parameter, StepsThatMoveItByMoreThanItselfAreUnstable) {
  OneSite run(parameter());
  for (const double update : {1.6, 11.0, 0.98, 0.45}) run.step(moved(1, update));
  ASSERT_EQ(run.transitions().size(), 1U);
  EXPECT_EQ(run.transitions()[0].step, 2);
  EXPECT_EQ(run.transitions()[0].to, Condition::unstable);
}

TEST(Parameter, AHalfIsUnstableWhereAThousandthWasUsual) {
  OneSite run(parameter());
  for (int i = 0; i < 50; ++i) run.step(moved(1, 1e-3));
  run.step(moved(1, 0.5));
  EXPECT_TRUE(run.transitions().empty()) << "a single step";
  for (int i = 0; i < 3; ++i) run.step(moved(1, 0.5));
  ASSERT_EQ(run.transitions().size(), 1U);
  EXPECT_NEAR(run.transitions()[0].baseline, 1e-3, 1e-6);
}

TEST(Parameter, OneThatStartsAtZeroMayMoveByMoreThanItself) {
  for (const double momentum : {0.0, 0.9}) {
    OneSite run(parameter());
    double weight = 0, velocity = 0;
    for (int i = 0; i < 200; ++i) {
      velocity = momentum * velocity + 1e-3;
      const double before = weight;
      weight += velocity;
      run.step(moved(weight, velocity / before));  // Inf in the first step
    }
    EXPECT_TRUE(run.transitions().empty()) << momentum;
  }
}

TEST(Parameter, AFactorOfLoRAThatStartsAtZeroIsSilent) {
  OneSite run(parameter());
  const double updates[] = {NAN, 2.6, 0.46, 1.07, 0.85, 0.68, 0.2, 0.21, 0.07, 0.08, 0.32, 0.24, 0.09, 0.08};
  for (const double update : updates) run.step(moved(0.1, update));
  EXPECT_TRUE(run.transitions().empty());
}

TEST(Parameter, AFewLargeStepsOfPlainSgdAreSilent) {
  OneSite run(parameter());
  Noise noise(8);
  for (int i = 0; i < 100; ++i) run.step(moved(1, 0.009 * noise.factor(0.5)));
  for (const double update : {0.16, 0.18, 0.17}) run.step(moved(1, update));
  EXPECT_TRUE(run.transitions().empty());
}

TEST(Parameter, WarmUpAndSchedulesAreSilent) {
  OneSite run(parameter());
  Noise noise(5);
  for (int i = 0; i < 3000; ++i) {
    const double warm_up = std::min(1.0, i / 500.0);
    const double restart = 0.5 * (1 + std::cos(i % 500 * 3.14159 / 500));
    run.step(moved(1, 0.02 * warm_up * restart * noise.factor(0.5)));
  }
  EXPECT_TRUE(run.transitions().empty());
}

TEST(Parameter, OneThatDecaysToNothingIsNotUnstable) {
  OneSite run(parameter());
  for (int i = 0; i < 2000; ++i) {
    const double weight = std::max(std::pow(0.99, i), 1e-4);
    run.step(moved(weight, 1e-3 / weight));
  }
  EXPECT_TRUE(run.transitions().empty());
}

// Activations.

TEST(Activation, SaturationIsAnEventOnceItLasts) {
  OneSite run(site(SiteRole::activation, "model.act1"));
  for (int i = 0; i < 30; ++i) run.step(unit(0.1, NAN));
  run.step(unit(0.9, NAN));
  for (int i = 0; i < 5; ++i) run.step(unit(0.1, NAN));
  EXPECT_TRUE(run.transitions().empty()) << "a single step";
  for (int i = 0; i < 100; ++i) run.step(unit(std::min(0.1 + 0.05 * i, 0.95), NAN));
  ASSERT_EQ(run.transitions().size(), 1U);
  EXPECT_EQ(run.transitions()[0].to, Condition::saturated);
  EXPECT_NEAR(run.transitions()[0].baseline, 0.1, 1e-3);
  EXPECT_NEAR(run.transitions()[0].value, 0.65, 1e-3);
}

TEST(Activation, SaturationFromTheStartIsAnEvent) {
  OneSite run(site(SiteRole::activation, "model.act1"));
  for (int i = 0; i < 10; ++i) run.step(unit(0.7, NAN));
  ASSERT_EQ(run.transitions().size(), 1U);
  EXPECT_EQ(run.transitions()[0].step, 4);
}

/// An activation at order 3, with a parameter in front of it or behind it, and a loss.
std::vector<Transition> saturating(std::string op, std::int32_t parameter_order, double last_loss) {
  std::vector<Site> sites = {site(SiteRole::activation, "act", 3),
                             site(SiteRole::gradient, "w", parameter_order, kMatrix)};
  sites[0].op = std::move(op);
  Detector detector;
  StepRow row;
  std::vector<Transition> all;
  for (row.step = 0; row.step < 300; ++row.step) {
    const double t = static_cast<double>(row.step) / 300;
    row.loss = 1 + t * (last_loss - 1);
    row.loss_state = StepRow::Loss::finite;
    row.sites = {unit(0.95 * t, NAN), health(0.1)};
    const auto changed = detector.observe(sites, row);
    all.insert(all.end(), changed.begin(), changed.end());
  }
  return all;
}

TEST(Activation, SaturationOfTheOutputOrOfASoftmaxOrOfANetThatLearnsIsNone) {
  EXPECT_EQ(saturating("aten::tanh", 5, 0.9).size(), 1U);
  EXPECT_TRUE(saturating("aten::sigmoid", 2, 0.9).empty()) << "nothing behind it has a parameter";
  EXPECT_TRUE(saturating("aten::_softmax", 5, 0.9).empty());
  EXPECT_TRUE(saturating("aten::tanh", 5, -1.5).empty()) << "the loss fell all the while";
}

TEST(Activation, DeadUnitsAreAnEvent) {
  OneSite run(site(SiteRole::activation, "model.act1"));
  for (int i = 0; i < 5; ++i) run.step(unit(NAN, 0.1));
  for (int i = 0; i < 50; ++i) run.step(unit(NAN, 1));
  ASSERT_EQ(run.transitions().size(), 1U);
  EXPECT_EQ(run.transitions()[0].to, Condition::dead);
  EXPECT_EQ(run.transitions()[0].step, 8);
}

TEST(Activation, SparsityIsNotDeath) {
  OneSite run(site(SiteRole::activation, "model.act1"));
  Noise noise(6);
  for (int i = 0; i < 500; ++i) run.step(unit(NAN, 0.3 + 0.15 * noise.uniform()));
  EXPECT_TRUE(run.transitions().empty());
  OneSite generator(site(SiteRole::activation, "model.act1"));
  for (int i = 0; i < 200; ++i) generator.step(unit(NAN, i < 100 ? 0.04 : 0.58));
  EXPECT_TRUE(generator.transitions().empty());
  OneSite small_batches(site(SiteRole::activation, "model.act1"));  // the window fills: half, a fourth, an eighth …
  for (int i = 0; i < 100; ++i) small_batches.step(unit(NAN, std::pow(0.5, 0.3 * (i + 1))));
  EXPECT_TRUE(small_batches.transitions().empty());
}

TEST(Activation, ExplodesAgainstItsBaseline) {
  OneSite run(site(SiteRole::activation, "model.act1"));
  run.steps(30, 1);
  run.steps(3, 1e5);
  ASSERT_EQ(run.transitions().size(), 1U);
  EXPECT_EQ(run.transitions()[0].to, Condition::exploding);
  Site output = site(SiteRole::activation, "model");
  output.op = "";
  OneSite model(output);  // the output goes where the targets are: house prices
  for (int i = 0; i < 300; ++i) model.step(0.1 * std::pow(1.05, i));
  EXPECT_TRUE(model.transitions().empty());
}

// Loss.

TEST(Loss, OneStepFarAboveIsASpikeAndTheRunGoesOn) {
  OneSite run(loss());
  Noise noise(7);
  for (int i = 0; i < 100; ++i) run.step(2.5 * noise.factor(0.05));
  run.step(30);
  for (int i = 0; i < 20; ++i) run.step(2.5 * noise.factor(0.05));
  ASSERT_EQ(run.transitions().size(), 2U);
  EXPECT_EQ(run.transitions()[0].step, 100);
  EXPECT_EQ(run.transitions()[0].to, Condition::spiking);
  EXPECT_EQ(run.transitions()[0].value, 30);
  EXPECT_NEAR(run.transitions()[0].baseline, 2.5, 0.1);
  EXPECT_EQ(run.transitions()[1].to, Condition::healthy);
}

TEST(Loss, ADivergenceIsExploding) {
  OneSite run(loss());
  run.steps(40, 1);
  for (int i = 0; i < 20; ++i) run.step(std::pow(3.0, i));
  EXPECT_EQ(run.transitions().back().to, Condition::exploding);
}

TEST(Loss, OfRawHousePricesIsLargeAndHealthy) {
  OneSite run(loss());
  Noise noise(8);
  for (int i = 0; i < 2000; ++i) run.step(4e10 * std::exp(-i / 400.0) * noise.factor(0.3));
  EXPECT_TRUE(run.transitions().empty());
}

TEST(Loss, OverfittingToZeroIsHealthy) {
  OneSite run(loss());
  Noise noise(9);
  for (int i = 0; i < 3000; ++i) run.step(2.3 * std::pow(10.0, -i / 200.0) * noise.factor(0.5));
  run.steps(50, 0);
  run.step(1e-4);  // a jump by decades, of no height
  run.steps(50, 0);
  EXPECT_TRUE(run.transitions().empty());
}

TEST(Loss, BelowZeroIsHealthy) {
  OneSite run(loss());
  Noise noise(10);
  for (int i = 0; i < 3000; ++i) run.step(1.1 - 3 * (1 - std::exp(-i / 300.0)) + 0.2 * noise.normal());
  EXPECT_TRUE(run.transitions().empty());
}

TEST(Loss, SpikesOfAHeavyTailedLossAreHealthy) {
  OneSite run(loss());  // batches of one sample: exponentially distributed
  Noise noise(11);
  for (int i = 0; i < 5000; ++i) run.step(-std::log(noise.uniform()));
  EXPECT_LE(run.transitions().size(), 2U);
}

TEST(Loss, IsTakenFromTheRowWhereTheSiteHasNoHealth) {
  const std::vector<Site> sites = {loss()};
  Detector detector;
  StepRow row;
  row.loss_state = StepRow::Loss::nan;
  const auto changed = detector.observe(sites, row);
  ASSERT_EQ(changed.size(), 1U);
  EXPECT_EQ(changed[0].to, Condition::non_finite);
}

// Batches.

TEST(Batch, AnOutlierIsASpikeInItsOwnStep) {
  OneSite run(input());
  Noise noise(12);
  for (int i = 0; i < 40; ++i) run.step(noise.factor(0.1));
  Health fill = health(2);
  fill.absmax = 9999;  // one pixel of -9999
  run.step(fill);
  ASSERT_EQ(run.transitions().size(), 1U);
  EXPECT_EQ(run.transitions()[0].step, 40);
  EXPECT_EQ(run.transitions()[0].to, Condition::spiking);
  EXPECT_EQ(run.transitions()[0].value, 9999);
  EXPECT_NEAR(run.transitions()[0].baseline, 3, 0.3);
}

TEST(Batch, LessThanADecadeIsNone) {
  OneSite run(input());
  for (int i = 0; i < 40; ++i) run.step(1);
  run.step(9);
  EXPECT_TRUE(run.transitions().empty());
}

TEST(Batch, IdsHaveNoMagnitude) {
  Site ids = input();
  ids.dtype = "int64";
  OneSite run(ids);
  for (int i = 0; i < 40; ++i) run.step(1);
  run.step(30000);
  EXPECT_TRUE(run.transitions().empty());
}

TEST(Batch, TheSameBadBatchInEveryEpochIsToldAFewTimesOnly) {
  OneSite run(input());
  for (int i = 0; i < 2000; ++i) run.step(i % 20 == 19 ? 1e4 : 1);
  EXPECT_EQ(run.transitions().size(), 6U);  // three times there and back
}

TEST(Batch, NaNIsAnEventOnlyWhereItDoesHarm) {
  std::vector<Site> sites = {input(), gradient()};
  Detector detector;
  StepRow row;
  row.sites = {bad(), health(1)};  // a missing label that the loss leaves out
  for (row.step = 0; row.step < 20; ++row.step) EXPECT_TRUE(detector.observe(sites, row).empty());
  row.sites = {bad(), bad()};
  row.skipped = true;  // an overflow of the loss scale in the same step
  EXPECT_TRUE(detector.observe(sites, row).empty());
  row.skipped = false;
  const auto changed = detector.observe(sites, row);
  ASSERT_EQ(changed.size(), 2U);
  EXPECT_EQ(changed[0].site, 0);
  EXPECT_EQ(changed[0].to, Condition::non_finite);
}

// The whole.

/// A run as a healthy one is: a loss that falls, gradients that shrink by decades, noise, a schedule, sparse units.
struct HealthyRun {
  std::vector<Site> sites;
  Noise noise{13};
  double sigma = 0.4;

  explicit HealthyRun(int layers) {
    sites = {loss(), input(), site(SiteRole::optimizer, "group 0")};
    for (int i = 0; i < layers; ++i) {
      const std::string name = "layers." + std::to_string(i);
      sites.push_back(site(SiteRole::activation, name + ".act", 2 * i + 1));
      sites.push_back(site(SiteRole::gradient, name + ".weight", 2 * i, kMatrix));
      sites.push_back(site(SiteRole::parameter, name + ".weight", 2 * i, kMatrix));
    }
  }
  Health at(const Site& one, double t) {
    const double left = 1e-8 + std::pow(10.0, -6 * t);
    switch (one.role) {
      case SiteRole::loss: return health(2.3 * left * noise.factor(sigma));
      case SiteRole::gradient: return health(0.1 * std::sqrt(left) * noise.factor(sigma));
      case SiteRole::parameter: return moved(0.05, 0.01 * std::min(1.0, 20 * t) * (1.01 - t) * noise.factor(sigma));
      case SiteRole::activation: return unit(0.2 + 0.2 * noise.uniform(), 0.3 * noise.uniform());
      default: return health(noise.factor(0.2));
    }
  }
  StepRow row(std::int64_t step, double t) {
    StepRow one;
    one.step = step;
    for (const Site& site : sites) one.sites.push_back(at(site, t));
    one.loss = one.sites[0].rms;
    one.loss_state = StepRow::Loss::finite;
    return one;
  }
};

TEST(Detector, StaysSilentOnTenThousandHealthySteps) {
  HealthyRun run(12);
  Detector detector;
  for (int step = 0; step < 10000; ++step) {
    const auto changed = detector.observe(run.sites, run.row(step, step / 10000.0));
    ASSERT_TRUE(changed.empty()) << "step " << step << ", " << run.sites[changed[0].site].name << " became "
                                 << name_of(changed[0].to) << " at " << changed[0].value;
  }
}

TEST(Detector, NamesTheSiteThatChangedAndNoOther) {
  HealthyRun run(3);
  Detector detector;
  for (int step = 0; step < 100; ++step) detector.observe(run.sites, run.row(step, 0.1));
  StepRow row = run.row(100, 0.1);
  const auto is_gradient = [](const Site& one) { return one.role == SiteRole::gradient; };
  const auto found = std::find_if(run.sites.begin(), run.sites.end(), is_gradient) - run.sites.begin();
  row.sites[static_cast<std::size_t>(found)].rms = 1e6F;
  const auto changed = detector.observe(run.sites, row);
  ASSERT_EQ(changed.size(), 1U);
  EXPECT_EQ(changed[0].site, found);
  EXPECT_EQ(changed[0].step, 100);
  EXPECT_EQ(detector.state(static_cast<std::size_t>(found)), Condition::exploding);
  EXPECT_EQ(detector.state(0), Condition::healthy);
  EXPECT_EQ(detector.state(10000), Condition::healthy);
}

TEST(Detector, TakesSitesThatAppearLateAndRowsThatAreShort) {
  std::vector<Site> sites = {gradient()};
  Detector detector;
  StepRow row;
  row.sites = {health(0.1)};
  detector.observe(sites, row);
  sites.push_back(parameter());
  row.step = 1;
  EXPECT_TRUE(detector.observe(sites, row).empty());
  row.step = 2;
  row.sites = {health(0.1), bad()};
  const auto changed = detector.observe(sites, row);
  ASSERT_EQ(changed.size(), 1U);
  EXPECT_EQ(changed[0].site, 1);
}

}  // namespace
}  // namespace firstfault::detect
