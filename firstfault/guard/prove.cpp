#include "firstfault/guard/prove.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

namespace firstfault::guard {
namespace {

using namespace experiment;

constexpr std::int64_t kMostSteps = 5000;  // in one window
constexpr std::int64_t kSmaller[] = {10, 100};
constexpr std::int64_t kLeastWarmUp = 5;
constexpr std::int64_t kMargin = 2;   // steps after the fault
constexpr std::int64_t kBefore = 50;  // steps before the onset, for a watch to learn what is usual

bool holds(const std::vector<std::string_view>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::vector<WindowChange> known_changes(const WindowPlan& plan, bool diverged) {
  std::vector<WindowChange> all;
  for (const std::int64_t part : kSmaller) {
    if (part * plan.steps > kMostSteps) continue;
    all.push_back({kLowerRate, part, 0, part, "1/" + std::to_string(part) + " of the learning rate"});
  }
  all.push_back({.name = kZeroGrad, .text = "gradients set to zero before each step"});
  all.push_back({.name = kAveraged, .text = "gradients divided by the number of backwards"});
  if (plan.first == 0) {
    // A warm-up puts off nearly every divergence: it must hold for as long again.
    const std::int64_t steps = std::max(kLeastWarmUp, plan.steps / 2);
    all.push_back({kWarmUp, 1, steps, diverged ? 2 : 1, "a warm-up of " + std::to_string(steps) + " steps"});
  }
  all.push_back({.name = kStandardised, .text = "inputs and targets with mean 0 and deviation 1"});
  if (plan.raw_scores) all.push_back({.name = kLogProbabilities, .text = "log_softmax of the scores before nll_loss"});
  return all;
}

struct OwnChange {
  std::string_view name;
  const char* text;
  bool of_divergences = true;  // false: it changes every value, and says nothing about one
};

constexpr OwnChange kOwn[] = {
    {kFloat32, "parameters, buffers and casts in float32"},
    {kInitialised, "parameters drawn anew, with a variance of 1 / fan-in", false},
    {kOtherActivation, "relu in place of sigmoid and tanh between layers, with parameters drawn for it", false},
    {kLeaky, "leaky_relu in place of relu", false},
    {kTargetShape, "targets in the shape of the predictions"},
    {kKeptState, "the optimizer's state put back where it was lost"},
    {kWithoutDecay, "no weight decay"},
    {kBatchClipped, "the batch clipped to the range of earlier ones"},
    {kOtherBatch, "the batch of the onset replaced by the one before"},
};

std::vector<WindowChange> changes_of(const WindowPlan& plan, bool diverged) {
  std::vector<WindowChange> all;
  for (WindowChange& one : known_changes(plan, diverged)) {
    if (diverged || holds(plan.own, one.name)) all.push_back(std::move(one));
  }
  for (const OwnChange& one : kOwn) {
    if (holds(plan.own, one.name) && (!diverged || one.of_divergences)) {
      all.push_back({.name = one.name, .text = one.text});
    }
  }
  return all;
}

class Proof {
 public:
  Proof(WindowProgram& program, const WindowPlan& plan) : program_(program), plan_(plan) {}

  // False: there is no fault to be cured.
  bool unchanged() {
    auto [run, seconds] = timed(nullptr, plan_.steps, !plan_.diverged);
    if (!run || run->losses.empty()) return false;
    unchanged_ = std::move(*run);
    Experiment first = told(kWindow, unchanged_, seconds);
    first.outcome = shows_a_fault(unchanged_) ? ExperimentOutcome::failed : ExperimentOutcome::cured;
    first.text = steps_of(first) + ", nothing changed";
    add(std::move(first));
    return made_.front().outcome == ExperimentOutcome::failed;
  }

  void changed(const WindowChange& change, bool watched) {
    const bool by_less = std::any_of(made_.begin(), made_.end(), [&](const Experiment& one) {
      return one.name == change.name && one.outcome == ExperimentOutcome::cured;
    });
    if (by_less) return;
    const std::int64_t steps =
        change.times == 1 ? std::min(plan_.steps, unchanged_.made()) : change.times * plan_.steps;
    const auto [run, seconds] = timed(&change, change.times * plan_.steps, watched);
    Experiment one = told(change.name, run.value_or(WindowRun()), seconds);
    one.outcome = run ? judge_window(unchanged_, *run, steps) : ExperimentOutcome::not_applicable;
    one.text = change.text + (run ? ", " + steps_of(one) : "");
    if (run && run->made() < steps && one.outcome == ExperimentOutcome::not_applicable)
      one.text += ", and then it ended";
    const bool more_would_be_too_long = change.divisor > 1 && kSmaller[1] * plan_.steps > kMostSteps;
    if (one.outcome == ExperimentOutcome::failed && more_would_be_too_long) {
      one.outcome = ExperimentOutcome::not_applicable;
      one.text += "; less of it would take too many";
    }
    add(std::move(one));
  }

  bool diverged() const { return diverges(unchanged_); }
  std::vector<Experiment> take() { return std::move(made_); }

 private:
  std::pair<std::optional<WindowRun>, double> timed(const WindowChange* change, std::int64_t steps, bool watched) {
    const auto began = std::chrono::steady_clock::now();
    auto run = program_.run(change, steps, watched);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    return {std::move(run), took.count()};
  }
  Experiment told(std::string_view name, const WindowRun& run, double seconds) const {
    Experiment made;
    made.name = name;
    made.step = plan_.step;
    made.seconds = seconds;
    made.size = made.replays = run.made();
    return made;
  }
  std::string steps_of(const Experiment& made) const {
    return std::to_string(made.size) + " steps from step " + std::to_string(plan_.first);
  }
  void add(Experiment one) {
    made_.push_back(std::move(one));
    if (plan_.progress) plan_.progress(made_.back());
  }

  WindowProgram& program_;
  const WindowPlan& plan_;
  WindowRun unchanged_;
  std::vector<Experiment> made_;
};

}  // namespace

std::vector<Experiment> prove_by_windows(WindowProgram& program, const WindowPlan& plan) {
  Proof proof(program, plan);
  if (!proof.unchanged()) return proof.take();
  for (const WindowChange& change : changes_of(plan, proof.diverged())) proof.changed(change, !proof.diverged());
  return proof.take();
}

std::vector<WindowSpan> window_spans(std::int64_t onset, std::int64_t step, std::int64_t made, bool diverged,
                                     const std::vector<std::int64_t>& snapshots) {
  std::vector<WindowSpan> spans;
  const auto add = [&](std::int64_t until) {
    const auto after = std::upper_bound(snapshots.begin(), snapshots.end(), until);
    if (after == snapshots.begin()) return;
    const std::int64_t first = *std::prev(after);
    const std::int64_t last = diverged ? step + kMargin : std::min(made - 1, first + kMostSteps - 1);
    if (last >= first && (spans.empty() || spans.back().first != first)) spans.push_back({first, last + 1 - first});
  };
  add(diverged ? onset : std::max<std::int64_t>(0, onset - kBefore));
  if (!diverged && !snapshots.empty()) add(snapshots.front());
  return spans;
}

}  // namespace firstfault::guard
