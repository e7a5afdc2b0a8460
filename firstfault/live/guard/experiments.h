// Replays of a faulty step with one thing changed each, in their order and within a budget.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "firstfault/events/experiment.h"
#include "firstfault/live/guard/batch_memory.h"
#include "firstfault/live/guard/replay.h"

namespace firstfault::guard {

/// A change that only the program can make, under the name of its experiment: another precision, another state, a
/// repaired hyperparameter. `Change::name` is that name.
struct OwnChange {
  Change change;
  std::string text;  ///< what is changed: "the learning rate of the step before (0.1)"
  /// Asked where the step did not become finite: why the change could not take effect, "" where it did. May be empty.
  std::function<std::string()> no_effect = {};
};

struct Circumstances {
  std::int64_t step = 0;  ///< as the run counts
  ReplayResult result;    ///< what the step came to
  BatchTensors previous;  ///< the last good batch, {}: none
  std::vector<std::optional<BatchMemory::Range>> ranges;
  std::int64_t batches = 0;  ///< that the ranges are of
  bool raw_scores = false;   ///< nll_loss is given values that are no log-probabilities
  std::vector<OwnChange> own;
  int unchanged = 2;  ///< replays with nothing changed
  int max_replays = 64;
  double max_seconds = 30;
  std::function<void(const Experiment&)> progress;  ///< after each one; may be empty
};

struct Experiments {
  Exactness exactness;
  std::vector<Experiment> made;  ///< the first one is "unchanged"; alone where it was not exact
};

/// Matrices normal with a variance of 1 / fan-in, always the same ones; of vectors only those that are not finite.
void draw_anew(const std::vector<at::Tensor>& parameters);

/// Throws nothing of the program's: such a replay `threw`. Thread as for Replayer.
Experiments experiment(Replayer& replayer, const Circumstances& given);

}  // namespace firstfault::guard
