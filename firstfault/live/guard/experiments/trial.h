// One series of experiments on one step: what all of them share.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "firstfault/live/guard/experiments.h"

namespace firstfault::guard {

class Trial {
 public:
  Trial(Replayer& replayer, const Circumstances& given) : given(given), replayer_(replayer) {}

  /// The step with this change; nullopt: the budget is spent. What changes the batch is seen by no observer.
  std::optional<ReplayResult> run(Change change);
  /// The same as an experiment, which is noted.
  Experiment make(std::string_view name, Change change, std::string text);
  Experiment make(const OwnChange& own);
  void note(Experiment experiment);
  void not_applicable(std::string_view name, std::string why);

  /// Of the replay with nothing changed: the first op that did harm, nullptr where none is known.
  const Origin* origin() const;
  bool cured(std::string_view name) const;
  const Experiment* find(std::string_view name) const;
  const BatchTensors& batch() const { return replayer_.state().batch; }

  const Circumstances& given;
  Experiments found;

 private:
  bool spent() const;

  Replayer& replayer_;
  int replays_ = 0, noted_replays_ = 0;
  double noted_seconds_ = 0;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

/// First fault of a replay, nullptr for none.
const Origin* first_fault(const ReplayResult& result);
ExperimentOutcome outcome_of(const std::optional<ReplayResult>& result);

/// One experiment: looks whether it applies, and makes it.
struct Experimenter {
  std::string_view name;
  void (*make)(Trial& trial);
};

}  // namespace firstfault::guard
