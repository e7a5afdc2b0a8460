#include "firstfault/guard/prove.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace firstfault::guard {
namespace {

using namespace experiment;

constexpr std::int64_t kMostSteps = 5000;  // in one window
constexpr std::int64_t kSmaller[] = {10, 100};
constexpr std::int64_t kLeastWarmUp = 5;

bool holds(const std::vector<std::string_view>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::vector<WindowChange> known_changes(const WindowPlan& plan) {
  std::vector<WindowChange> all;
  for (const std::int64_t part : kSmaller) {
    if (part * plan.steps > kMostSteps) continue;
    all.push_back({kLowerRate, part, 0, "1/" + std::to_string(part) + " of the learning rate"});
  }
  all.push_back({kZeroGrad, 1, 0, "gradients set to zero before each step"});
  all.push_back({kAveraged, 1, 0, "gradients divided by the number of backwards"});
  if (plan.first == 0) {
    const std::int64_t steps = std::max(kLeastWarmUp, plan.steps / 2);
    all.push_back({kWarmUp, 1, steps, "a warm-up of " + std::to_string(steps) + " steps"});
  }
  all.push_back({kStandardised, 1, 0, "inputs and targets with mean 0 and deviation 1"});
  if (plan.raw_scores) all.push_back({kLogProbabilities, 1, 0, "log_softmax of the scores before nll_loss"});
  return all;
}

std::vector<WindowChange> own_changes(const WindowPlan& plan) {
  std::vector<WindowChange> all;
  for (WindowChange& one : known_changes(plan)) {
    if (holds(plan.own, one.name)) all.push_back(std::move(one));
  }
  const std::pair<std::string_view, const char*> others[] = {
      {kFloat32, "parameters, buffers and casts in float32"},
      {kInitialised, "parameters drawn anew, with a variance of 1 / fan-in"},
      {kOtherActivation, "relu in place of sigmoid and tanh between layers, with parameters drawn for it"},
      {kLeaky, "leaky_relu in place of relu"},
      {kTargetShape, "targets in the shape of the predictions"},
      {kKeptState, "the optimizer's state put back where it was lost"},
      {kWithoutDecay, "no weight decay"},
      {kBatchClipped, "the batch clipped to the range of earlier ones"},
      {kOtherBatch, "the batch of the onset replaced by the one before"},
  };
  for (const auto& [name, text] : others) {
    if (holds(plan.own, name)) all.push_back({name, 1, 0, text});
  }
  return all;
}

Experiment told(const WindowPlan& plan, std::string_view name, const std::optional<WindowRun>& run, double seconds) {
  Experiment made;
  made.name = name;
  made.step = plan.step;
  made.seconds = seconds;
  made.size = made.replays = run ? static_cast<std::int64_t>(run->losses.size()) : 0;
  return made;
}

std::string steps_from(const WindowPlan& plan, const Experiment& made) {
  return ", " + std::to_string(made.size) + " steps from step " + std::to_string(plan.first);
}

}  // namespace

std::vector<Experiment> prove_by_windows(WindowProgram& program, const WindowPlan& plan) {
  std::vector<Experiment> made;
  const auto timed = [&](const WindowChange* change, std::int64_t steps, bool watched) {
    const auto began = std::chrono::steady_clock::now();
    auto run = program.run(change, steps, watched);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    return std::pair(std::move(run), took.count());
  };
  const auto add = [&](Experiment one) {
    made.push_back(std::move(one));
    if (plan.progress) plan.progress(made.back());
  };
  const auto [unchanged, took] = timed(nullptr, plan.steps, !plan.diverged);
  if (!unchanged || unchanged->losses.empty()) return made;
  Experiment first = told(plan, kWindow, unchanged, took);
  first.outcome = shows_a_fault(*unchanged) ? ExperimentOutcome::failed : ExperimentOutcome::cured;
  first.text = std::to_string(first.size) + " steps from step " + std::to_string(plan.first) + ", nothing changed";
  add(std::move(first));
  if (made.front().outcome != ExperimentOutcome::failed) return made;

  const bool diverged = diverges(*unchanged);
  for (const WindowChange& change : diverged ? known_changes(plan) : own_changes(plan)) {
    const bool by_less = std::any_of(made.begin(), made.end(), [&](const Experiment& one) {
      return one.name == change.name && one.outcome == ExperimentOutcome::cured;
    });
    if (by_less) continue;
    const std::int64_t steps = change.times * plan.steps;
    const auto [run, seconds] = timed(&change, steps, !diverged);
    Experiment one = told(plan, change.name, run, seconds);
    one.outcome = run ? judge_window(*unchanged, *run) : ExperimentOutcome::not_applicable;
    one.text = change.text + (run ? steps_from(plan, one) : "");
    const bool too_short = change.times > 1 && one.size < steps && one.outcome == ExperimentOutcome::cured;
    if (too_short) {
      one.outcome = ExperimentOutcome::not_applicable;
      one.text += ", and then there is no more data";
    }
    add(std::move(one));
  }
  return made;
}

}  // namespace firstfault::guard
