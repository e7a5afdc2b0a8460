#include "firstfault/reason/standing/standing.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "firstfault/reason/standing/experiments_of_causes.h"

namespace firstfault::reason {
namespace {

using namespace experiment;
using Outcome = ExperimentOutcome;

constexpr std::int64_t kStep = 7;

Experiment made(std::string_view name, Outcome outcome, std::vector<std::int64_t> samples = {}) {
  Experiment one;
  one.name = name;
  one.outcome = outcome;
  one.step = kStep;
  one.samples = std::move(samples);
  one.text = "a change named " + std::string(name);
  return one;
}

// The unchanged replay failed bit for bit, and these cure; `failed` do not. With kWindow they are of windows.
std::vector<Experiment> exact(const std::vector<std::string_view>& cured,
                              const std::vector<std::string_view>& failed = {}) {
  std::vector<Experiment> all = {made(kUnchanged, Outcome::failed)};
  if (std::find(failed.begin(), failed.end(), kWindow) != failed.end()) all.push_back(made(kWindow, Outcome::failed));
  for (const auto name : cured) all.push_back(made(name, Outcome::cured));
  for (const auto name : failed) {
    if (name != kWindow) all.push_back(made(name, Outcome::failed));
  }
  return all;
}

Hypothesis suspected(std::string cause, std::string mechanism = "", double confidence = 0.9) {
  Hypothesis one;
  one.cause = std::move(cause);
  one.mechanism = std::move(mechanism);
  one.standing = one.mechanism.empty() ? Standing::inferred : Standing::observed;
  one.confidence = confidence;
  one.step = kStep;
  return one;
}

Hypothesis of(const std::vector<Hypothesis>& all, const std::string& cause) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const Hypothesis& one) { return one.cause == cause; });
  return found == all.end() ? Hypothesis() : *found;
}

Standing standing(const Hypothesis& hypothesis, const std::vector<Experiment>& experiments) {
  return of(judge_by_experiments({hypothesis}, experiments), hypothesis.cause).standing;
}

bool says(const Hypothesis& hypothesis, const std::string& text) {
  return std::any_of(hypothesis.evidence.begin(), hypothesis.evidence.end(),
                     [&](const Evidence& one) { return one.text.find(text) != std::string::npos; });
}

TEST(Standing, WithoutExperimentsNothingChanges) {
  EXPECT_EQ(standing(suspected("op_domain", "log_of_nonpositive"), {}), Standing::observed);
  EXPECT_EQ(standing(suspected("lr_too_high"), {}), Standing::inferred);
}

TEST(Standing, AHypothesisAboutAnotherStepIsLeftAlone) {
  Hypothesis other = suspected("op_domain", "log_of_nonpositive");
  other.step = kStep - 1;
  EXPECT_EQ(standing(other, exact({kOperand})), Standing::observed);
}

TEST(Standing, AnObservedMechanismIsConfirmedByTheRepairOfItsOp) {
  const auto judged = judge_by_experiments({suspected("op_domain", "log_of_nonpositive")}, exact({kOperand}));
  EXPECT_EQ(judged[0].standing, Standing::confirmed);
  EXPECT_GE(judged[0].confidence, 0.97);
  EXPECT_TRUE(says(judged[0], "a change named operand"));
  EXPECT_EQ(standing(suspected("op_domain", "log_of_nonpositive"), exact({kResult}, {kOperand})), Standing::confirmed);
}

TEST(Standing, ARepairedOpWhoseNameNothingSupportsIsOnlyLocated) {
  EXPECT_EQ(standing(suspected("overflow"), exact({kResult})), Standing::located);
}

TEST(Standing, LeavingSamplesOutSaysWhereAndNeverWhyWhereAnOpIsToBlame) {
  auto experiments = exact({kOperand, kPreviousBatch});
  experiments.push_back(made(kSamples, Outcome::cured, {5}));
  const auto judged = judge_by_experiments({suspected("op_domain", "log_of_nonpositive")}, experiments);
  EXPECT_EQ(judged[0].standing, Standing::confirmed);
  EXPECT_EQ(judged[0].sample, 5);
  EXPECT_EQ(standing(suspected("data_outlier"), {experiments[0], experiments[3]}), Standing::located);
}

TEST(Standing, ASampleAloneIsNamedAndSeveralAreNot) {
  auto experiments = exact({kResult});
  experiments.push_back(made(kSamples, Outcome::cured, {5, 9}));
  EXPECT_FALSE(judge_by_experiments({suspected("overflow")}, experiments)[0].sample.has_value());
}

TEST(Standing, AnotherBatchAloneLocates) {
  EXPECT_EQ(standing(suspected("op_domain", "log_of_nonpositive"), exact({kPreviousBatch})), Standing::located);
}

TEST(Standing, Float64NeverConfirms) {
  EXPECT_EQ(standing(suspected("overflow", "exp_overflow"), exact({kFloat64})), Standing::not_tested);
  EXPECT_EQ(standing(suspected("mixed_precision", "dtype_overflow"), exact({kFloat64}, {kFloat32})), Standing::refuted);
}

TEST(Standing, ClippedGradientsNeverConfirm) {
  EXPECT_EQ(standing(suspected("lr_too_high"), exact({"gradients_clipped"})), Standing::not_tested);
  EXPECT_EQ(standing(suspected("exploding_gradient"), exact({"gradients_clipped"})), Standing::not_tested);
}

TEST(Standing, AnEarlierStateNeverConfirms) {
  EXPECT_EQ(standing(suspected("lr_too_high"), exact({kEarlierState}, {kPreviousBatch})), Standing::not_tested);
}

TEST(Standing, ARepairedOpIsNoEvidenceInADivergence) {
  for (const char* cause : {"lr_too_high", "data_scale", "missing_zero_grad", "warmup_missing", "exploding_gradient"}) {
    const auto judged = judge_by_experiments({suspected(cause)}, exact({kResult, kOperand, kPreviousBatch}));
    EXPECT_EQ(judged[0].standing, Standing::not_tested) << cause;
    EXPECT_TRUE(says(judged[0], "it takes")) << cause;
  }
}

TEST(Standing, ALowerRateThatOnlyDelaysIsDelayed) {
  auto experiments = exact({});
  experiments.push_back(made(kWindow, Outcome::failed));
  experiments.push_back(made(kLowerRate, Outcome::delayed));
  EXPECT_EQ(standing(suspected("lr_too_high"), experiments), Standing::delayed);
}

TEST(Standing, AWindowGoesBeforeTheSingleReplayOfThatName) {
  auto experiments = exact({}, {kZeroGrad, kWindow});
  experiments.push_back(made(kZeroGrad, Outcome::cured));
  EXPECT_EQ(standing(suspected("missing_zero_grad"), experiments), Standing::confirmed);
}

TEST(Standing, ALowerRateOverTheLongerWindowConfirms) {
  EXPECT_EQ(standing(suspected("lr_too_high"), exact({kLowerRate}, {kWindow, kAveraged})), Standing::confirmed);
}

TEST(Standing, AnEpsThatCountsGoesBeforeAWiderDtype) {
  const auto judged = judge_by_experiments({suspected("optimizer_state", "optimizer_denominator")},
                                           exact({kHyperparameter, kFloat32, kResult}));
  EXPECT_EQ(judged.size(), 1u);
  EXPECT_EQ(judged[0].standing, Standing::confirmed);
}

TEST(Standing, WhatBeganBeforeIsNotJudgedByARepairOfTheLastStep) {
  Hypothesis loss = suspected("loss_definition");
  loss.onset_step = kStep - 5;
  const auto judged = judge_by_experiments({loss}, exact({kResult}, {kLogProbabilities}));
  EXPECT_EQ(judged[0].standing, Standing::not_tested);
  EXPECT_TRUE(says(judged[0], "from before step 2"));
}

TEST(Standing, WholeNumbersOutOfRangeSpeakForInvalidDataAndForNoOutlier) {
  const auto judged = judge_by_experiments(
      {suspected("data_invalid", "infeasible_ctc"), suspected("masked_softmax", "fully_masked_row")},
      exact({kWholeClipped, kResult}));
  EXPECT_EQ(of(judged, "data_invalid").standing, Standing::confirmed);
  EXPECT_EQ(of(judged, "masked_softmax").standing, Standing::confirmed);
  EXPECT_EQ(judged.size(), 2u);
}

TEST(Standing, TheSpecificGoesBeforeTheLowerRate) {
  const std::pair<std::string_view, const char*> pairs[] = {{kAveraged, "accumulation_not_averaged"},
                                                            {kZeroGrad, "missing_zero_grad"},
                                                            {kWarmUp, "warmup_missing"},
                                                            {kStandardised, "data_scale"}};
  for (const auto& [change, cause] : pairs) {
    const auto judged = judge_by_experiments({suspected("lr_too_high", "", 0.95), suspected(cause)},
                                             exact({kLowerRate, change}, {kWindow}));
    EXPECT_EQ(judged[0].cause, cause);
    EXPECT_EQ(judged[0].standing, Standing::confirmed) << cause;
    EXPECT_EQ(of(judged, "lr_too_high").standing, Standing::not_separable) << cause;
    EXPECT_TRUE(says(of(judged, "lr_too_high"), cause));
  }
}

TEST(Standing, StandardisedDataSpeakAgainstTheRateOnlyWhereTheirScaleIsSuspected) {
  EXPECT_EQ(standing(suspected("lr_too_high"), exact({kLowerRate, kStandardised, kWarmUp}, {kWindow})),
            Standing::confirmed);
}

TEST(Standing, AWindowThatDoesNotFailAgainProvesNothing) {
  const std::vector<Experiment> experiments = {made(kWindow, Outcome::cured), made(kLowerRate, Outcome::cured)};
  EXPECT_EQ(standing(suspected("lr_too_high"), experiments), Standing::not_tested);
}

TEST(Standing, AWindowThatFailsAgainRefutes) {
  const auto judged = judge_by_experiments({suspected("lr_too_high"), suspected("data_scale")},
                                           exact({kStandardised}, {kWindow, kLowerRate}));
  EXPECT_EQ(of(judged, "lr_too_high").standing, Standing::refuted);
  EXPECT_LE(of(judged, "lr_too_high").confidence, 0.1);
  EXPECT_EQ(judged.back().cause, "lr_too_high");
}

TEST(Standing, OneFailingReplayRefutesNoCauseThatNeedsAWindow) {
  EXPECT_EQ(standing(suspected("missing_zero_grad"), exact({}, {kZeroGrad})), Standing::not_tested);
}

TEST(Standing, ParametersDrawnAnewSpeakOnlyForABadInitThatIsSuspected) {
  EXPECT_EQ(standing(suspected("overflow", "exp_overflow"), exact({kResult, kInitialised})), Standing::confirmed);
  EXPECT_EQ(standing(suspected("bad_init"), exact({kInitialised})), Standing::confirmed);
  const auto judged = judge_by_experiments({suspected("bad_init"), suspected("overflow", "exp_overflow")},
                                           exact({kResult, kInitialised}));
  EXPECT_EQ(of(judged, "overflow").standing, Standing::not_separable);
}

TEST(Standing, AFragileOpAndABatchOutOfRangeAreBothSaid) {
  const auto judged =
      judge_by_experiments({suspected("overflow", "dtype_overflow")}, exact({kResult, kBatchClipped, kSamples}));
  EXPECT_EQ(of(judged, "overflow").standing, Standing::not_separable);
  EXPECT_TRUE(says(of(judged, "overflow"), "data_outlier"));
  EXPECT_EQ(of(judged, "data_outlier").standing, Standing::not_separable);
  EXPECT_TRUE(says(of(judged, "data_outlier"), "overflow"));
}

TEST(Standing, Float32AndARepairedOpAreBothSaidWhereTheNameIsAnOps) {
  const auto judged = judge_by_experiments({suspected("op_domain", "division_by_zero")}, exact({kOperand, kFloat32}));
  EXPECT_EQ(of(judged, "op_domain").standing, Standing::not_separable);
  EXPECT_EQ(of(judged, "mixed_precision").standing, Standing::not_separable);
}

TEST(Standing, MixedPrecisionIsConfirmedByFloat32AlthoughTheRepairedOpCuresToo) {
  EXPECT_EQ(standing(suspected("mixed_precision", "dtype_overflow"), exact({kFloat32, kResult, kPreviousBatch})),
            Standing::confirmed);
}

TEST(Standing, AnOwnChangeThatDoesNotCureRefutes) {
  const auto judged = judge_by_experiments({suspected("data_nonfinite", "bad_input")}, exact({}, {kBatchImputed}));
  EXPECT_EQ(judged[0].standing, Standing::refuted);
  EXPECT_TRUE(says(judged[0], "not enough alone"));
}

TEST(Standing, AChangeThatHadNothingToActOnRefutesNothing) {
  auto experiments = exact({});
  experiments.push_back(made(kFloat32, Outcome::not_applicable));
  experiments.push_back(made(kBatchImputed, Outcome::threw));
  experiments.push_back(made(kBatchClipped, Outcome::out_of_budget));
  for (const char* cause : {"mixed_precision", "data_nonfinite", "data_outlier"}) {
    const auto judged = judge_by_experiments({suspected(cause)}, experiments);
    EXPECT_EQ(judged[0].standing, Standing::not_tested) << cause;
    EXPECT_TRUE(says(judged[0], "it takes the step")) << cause;
  }
}

TEST(Standing, AReplayThatIsNotExactProvesNothing) {
  const std::vector<Experiment> experiments = {made(kUnchanged, Outcome::threw), made(kOperand, Outcome::cured)};
  EXPECT_EQ(standing(suspected("op_domain", "log_of_nonpositive"), experiments), Standing::not_tested);
}

TEST(Standing, AFaultThatDoesNotComeBackIsNotReproducible) {
  const auto judged =
      judge_by_experiments({suspected("op_domain", "log_of_nonpositive")}, {made(kUnchanged, Outcome::cured)});
  EXPECT_EQ(of(judged, "not_reproducible").standing, Standing::observed);
  EXPECT_EQ(of(judged, "op_domain").standing, Standing::not_tested);
}

TEST(Standing, AConfirmedOneGoesFirstAndARefutedOneLast) {
  const auto judged = judge_by_experiments({suspected("data_nonfinite", "", 0.99), suspected("lr_too_high", "", 0.95),
                                            suspected("op_domain", "log_of_nonpositive", 0.2)},
                                           exact({kOperand}, {kBatchImputed}));
  ASSERT_EQ(judged.size(), 3u);
  EXPECT_EQ(judged[0].cause, "op_domain");
  EXPECT_EQ(judged[1].cause, "lr_too_high");
  EXPECT_EQ(judged[2].cause, "data_nonfinite");
}

TEST(Standing, ACauseWithoutAnExperimentIsNotTested) {
  EXPECT_EQ(standing(suspected("moe_collapse"), exact({kOperand})), Standing::not_tested);
}

TEST(Standing, EveryCauseInTheTableSaysWhatWouldTestIt) {
  for (const char* cause : {"op_domain", "overflow", "masked_softmax", "loss_definition", "data_invalid",
                            "mixed_precision", "data_nonfinite", "data_outlier", "bad_init", "hyperparameter",
                            "optimizer_state", "lr_too_high", "data_scale", "dead_units"}) {
    ASSERT_NE(tests_of(cause), nullptr) << cause;
    EXPECT_FALSE(tests_of(cause)->missing.empty()) << cause;
  }
}

// Of windows alone: no step was faulty.
std::vector<Experiment> windows(const std::vector<std::string_view>& cured,
                                const std::vector<std::string_view>& failed = {}) {
  std::vector<Experiment> all = {made(kWindow, Outcome::failed)};
  for (const auto name : cured) all.push_back(made(name, Outcome::cured));
  for (const auto name : failed) all.push_back(made(name, Outcome::failed));
  return all;
}

TEST(Standing, WindowsProveWhatHasNoFaultyStep) {
  EXPECT_EQ(standing(suspected("vanishing_gradient"), windows({kOtherActivation}, {kInitialised})),
            Standing::confirmed);
  EXPECT_EQ(standing(suspected("bad_init"), windows({kInitialised})), Standing::confirmed);
  EXPECT_EQ(standing(suspected("mixed_precision"), windows({kFloat32})), Standing::confirmed);
  EXPECT_EQ(standing(suspected("loss_definition"), windows({kTargetShape})), Standing::confirmed);
  EXPECT_EQ(standing(suspected("optimizer_state"), windows({kKeptState})), Standing::confirmed);
  EXPECT_EQ(standing(suspected("dead_units"), windows({kLowerRate}, {kLeaky})), Standing::confirmed);
}

TEST(Standing, SomeOfManyChangesRefuteNothingAndAnOwnOneDoes) {
  EXPECT_EQ(standing(suspected("dead_units"), windows({}, {kLeaky, kLowerRate})), Standing::not_tested);
  EXPECT_EQ(standing(suspected("bad_init"), windows({}, {kInitialised})), Standing::refuted);
}

TEST(Standing, ASpikeThatIsGoneWithAnotherBatchIsLocatedAndWithItsBatchClippedProved) {
  EXPECT_EQ(standing(suspected("data_outlier"), windows({kOtherBatch}, {kBatchClipped})), Standing::located);
  EXPECT_EQ(standing(suspected("data_outlier"), windows({kOtherBatch, kBatchClipped})), Standing::confirmed);
}

TEST(Standing, AWindowThatSomethingElseCuresIsSaidOfWhatIsNotProved) {
  const auto judged =
      judge_by_experiments({suspected("overflow", "reduction_overflow")}, windows({kStandardised}, {kLowerRate}));
  EXPECT_EQ(judged[0].standing, Standing::not_tested);
  EXPECT_TRUE(says(judged[0], "finite with a change named standardised"));
  EXPECT_FALSE(says(judged[0], "lower_rate"));
}

// The step was replayed first, and windows were run after that.
TEST(Standing, AReplayOfTheStepProvesNothingAboutAWindow) {
  std::vector<Experiment> all = exact({kResult, kFloat32});
  for (const Experiment& one : windows({kLowerRate})) all.push_back(one);
  Hypothesis overflow = suspected("overflow", "reduction_overflow"), precision = suspected("mixed_precision");
  overflow.onset_step = precision.onset_step = 3;
  const auto judged = judge_by_experiments({overflow, precision, suspected("lr_too_high")}, all);
  EXPECT_EQ(of(judged, "lr_too_high").standing, Standing::confirmed);
  EXPECT_EQ(of(judged, "overflow").standing, Standing::not_tested);
  EXPECT_EQ(of(judged, "mixed_precision").standing, Standing::not_tested);
  // Nor does one refute.
  all = exact({}, {kBatchClipped});
  for (const Experiment& one : windows({}, {kLowerRate})) all.push_back(one);
  Hypothesis outlier = suspected("data_outlier");
  outlier.onset_step = 3;
  EXPECT_EQ(of(judge_by_experiments({outlier}, all), "data_outlier").standing, Standing::not_tested);
}

TEST(Standing, AWindowThatThrewSaysNothing) {
  auto all = windows({});
  all.push_back(made(kFloat32, Outcome::threw));
  EXPECT_EQ(standing(suspected("mixed_precision"), all), Standing::not_tested);
}

}  // namespace
}  // namespace firstfault::reason
