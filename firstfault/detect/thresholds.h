// The fixed thresholds of the detector, each with where it comes from. SM: SageMaker Debugger's built-in rules; AT:
// AutoTrainer (ICSE 2021); DD: DeepDiagnosis (ICSE 2022); ND: neuraldbg; TM: torchmortem; MG: Megatron-LM; OL:
// OLMo-core. "Ours": chosen so that the healthy series of detector_test.cc stay silent.
#pragma once

namespace firstfault::detect {

// Exploding: above DetectorOptions::threshold_exploding [ND: 1e3] and above the site's own baseline by
inline constexpr double kExplodingFactor = 100;       ///< [AT: first/last layer > 70, rounded up to 2 decades]
inline constexpr double kExplodingZ = 6;              ///< robust z [OL: 6 sigma]
inline constexpr double kExplodingAnyway = 1e4;       ///< needs no z: steady growth widens the spread; ours
inline constexpr double kExplodingFactorEarly = 1e3;  ///< while there are fewer than Baseline::kEnough values; ours
inline constexpr double kExplodingAtOnce = 1e3;       ///< a factor at which one step is enough; else it takes two
inline constexpr double kExplodingAtOnceEarly = 1e5;
inline constexpr double kExplodingFirst = 1e3;  ///< times the absolute threshold, while there are none; ours
inline constexpr double kExplodingLeave = 0.1;  ///< of the threshold and of the factor: one decade below

// Vanishing: below DetectorOptions::threshold_vanishing [ND: norm 1e-6; SM: mean 1e-7], and the others do not.
inline constexpr double kVanishingShare = 1e-4;  ///< of the norm of all gradients [AT: first/last < 1e-3, first < 1e-4]
inline constexpr double kStillLearning = 1e-3;   ///< least norm of all gradients: below it the run has converged; ours
inline constexpr double kVanishingRise = 5;      ///< above this multiple of its own median it is on its way up; ours
inline constexpr double kVanishingLeave = 10;    ///< times the thresholds: one decade
inline constexpr int kVanishingSteps = 10;

// Saturated: fraction of elements at a flat end, as `live` measures it (tanh |y| > 0.97, sigmoid < 0.03 or > 0.97).
inline constexpr double kSaturated = 0.5;  ///< [SM, DD: more than half of the units]
inline constexpr double kSaturatedLeave = 0.35;
inline constexpr double kSaturatedRise = 0.2;  ///< above the site's own baseline, once there is one; ours
inline constexpr int kSaturatedSteps = 3;
inline constexpr int kSaturatedStepsEarly = 5;  ///< while there is no baseline

// Dead: fraction of channels that were 0 for every sample of the window.
inline constexpr double kDead = 0.7;  ///< [AT: 0.7; SM: more than half of the units, which a healthy generator has]
inline constexpr double kDeadLeave = 0.5;
inline constexpr double kDeadRise = 0.2;
inline constexpr double kDeadAll = 0.9;  ///< from here on a few steps are enough
inline constexpr int kDeadSteps = 10;    ///< a small batch leaves half of the channels at 0 in the first steps
inline constexpr int kDeadStepsAll = 4;
/// Sparse codes learn with most channels silent: up to here it does not count while the loss has halved. Ours.
inline constexpr double kDeadThoughLearning = 0.95;

// Unstable: rms of the step's change over rms of the parameter.
inline constexpr double kUnstable =
    0.25;  ///< [TM: 0.1, which plain SGD on attention reaches twice] and above the baseline by
inline constexpr double kUnstableFactor = 10;
inline constexpr double kUnstableFactorEarly = 30;
inline constexpr double kUnstableAlone = 0.5;  ///< where there is no lower baseline: from the first steps on [SM: 10]
inline constexpr double kUnstableLeave = 0.05;
inline constexpr int kUnstableSteps = 2;
inline constexpr int kUnstableStepsAlone = 3;
/// A parameter that starts at (nearly) 0 moves by 2 / t of itself in its t-th step (momentum, warm-up). Three times
/// that is allowed: what its gradient passes through may start at 0 too (the two factors of LoRA).
inline constexpr double kFromZero = 6;
inline constexpr double kStartsAtZero = 10;  ///< ratio of its first step from which it counts as such
inline constexpr double kShrunk = 0.1;       ///< of its early rms: a parameter that decays to 0 is not unstable

// Spiking: one step far above the baseline.
inline constexpr double kSpikeZ = 6;  ///< robust z [OL: 6 sigma of 128 steps]
inline constexpr double kSpikeLeaveZ = 3;
inline constexpr double kDataFactor = 30;        ///< batch: sparse or padded ones vary by a decade; ours
inline constexpr double kDataLeave = 0.5;        ///< of the factor
inline constexpr double kDataFactorEarly = 1e3;  ///< while there are fewer than Baseline::kEnough values, from 4 on
inline constexpr double kLossFactor = 10;        ///< [MG: 10]
/// Least height of a spike, of the loss's early level: a loss near 0 may move by decades and mean nothing. Ours.
inline constexpr double kLossHeight = 0.25;
inline constexpr int kLossPlaces = 128;  ///< [OL: 128]
inline constexpr int kLossEnough = 32;
inline constexpr int kSpikesAllowed = 3;  ///< so many are told; later ones must be twice as high as all before

/// Of the event that says a site is healthy again.
inline constexpr double kRecovered = 0.9;

/// Consecutive readings below the leave threshold before a site is healthy again.
inline constexpr int kLeaveSteps = 5;

/// The loss has halved (or fallen by half of its early magnitude): what looks saturated is a net that has learned.
inline constexpr double kImproved = 0.5;

}  // namespace firstfault::detect
