#include "firstfault/live/guard/experiments/trial.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

namespace firstfault::guard {

const Origin* first_fault(const ReplayResult& result) {
  const auto found = std::find_if(result.origins.begin(), result.origins.end(),
                                  [](const Origin& origin) { return origin.outcome == Outcome::fault; });
  return found == result.origins.end() ? nullptr : &*found;
}

ExperimentOutcome outcome_of(const std::optional<ReplayResult>& result) {
  if (!result) return ExperimentOutcome::out_of_budget;
  if (result->threw) return ExperimentOutcome::threw;
  return result->finite ? ExperimentOutcome::cured : ExperimentOutcome::failed;
}

bool Trial::spent() const {
  const std::chrono::duration<double> since = std::chrono::steady_clock::now() - began_;
  return replays_ >= given.max_replays || since.count() >= given.max_seconds;
}

std::optional<ReplayResult> Trial::run(Change change) {
  if (spent()) return std::nullopt;
  ++replays_;
  if (change.batch) {
    change.batch = [altered = std::move(change.batch)](BatchTensors batch) {
      const at::DisableRecordFunctionGuard unobserved;
      const at::NoGradGuard no_grad;
      return altered(std::move(batch));
    };
  }
  return replayer_.run(change);
}

Experiment Trial::make(std::string_view name, Change change, std::string text) {
  change.name = name;
  return make({std::move(change), std::move(text)});
}

Experiment Trial::make(const OwnChange& own) {
  Experiment experiment;
  experiment.name = own.change.name;
  const auto result = run(own.change);
  experiment.outcome = outcome_of(result);
  experiment.text = own.text;
  if (result && result->threw) experiment.text += " (" + last_line(result->error) + ")";
  if (const auto why = result && !result->finite && own.no_effect ? own.no_effect() : ""; !why.empty()) {
    experiment.outcome = ExperimentOutcome::not_applicable;
    experiment.text = why;
  }
  note(experiment);
  return experiment;
}

void Trial::note(Experiment experiment) {
  const std::chrono::duration<double> since = std::chrono::steady_clock::now() - began_;
  experiment.step = given.step;
  experiment.replays = replays_ - noted_replays_;
  experiment.seconds = since.count() - noted_seconds_;
  noted_replays_ = replays_;
  noted_seconds_ = since.count();
  found.made.push_back(std::move(experiment));
  if (given.progress) given.progress(found.made.back());
}

void Trial::not_applicable(std::string_view name, std::string why) {
  Experiment experiment;
  experiment.name = name;
  experiment.text = std::move(why);
  note(std::move(experiment));
}

const Origin* Trial::origin() const {
  const auto& origins = found.exactness.origins;
  const auto found_one = std::find_if(origins.begin(), origins.end(),
                                      [](const Origin& origin) { return origin.outcome == Outcome::fault; });
  return found_one == origins.end() ? nullptr : &*found_one;
}

const Experiment* Trial::find(std::string_view name) const {
  const auto known =
      std::find_if(found.made.begin(), found.made.end(), [&](const Experiment& one) { return one.name == name; });
  return known == found.made.end() ? nullptr : &*known;
}

bool Trial::cured(std::string_view name) const {
  const Experiment* known = find(name);
  return known != nullptr && known->outcome == ExperimentOutcome::cured;
}

}  // namespace firstfault::guard
