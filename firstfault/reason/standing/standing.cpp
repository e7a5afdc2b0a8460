#include "firstfault/reason/standing/standing.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "firstfault/reason/standing/experiments_of_causes.h"

namespace firstfault::reason {
namespace {

using namespace experiment;

// Of hypotheses that stand so, as many are right on the cases.
constexpr double kConfirmed = 0.97;
constexpr double kNotSeparable = 0.6;
constexpr double kRefuted = 0.1;
constexpr double kNotReproducible = 0.9;

/// The experiments on one step.
class Results {
 public:
  explicit Results(std::vector<Experiment> all) : all_(std::move(all)) {}

  /// The last one of that name: windows are made after single replays, and a smaller learning rate after a small one.
  const Experiment* find(std::string_view name) const {
    const auto is_it = [&](const Experiment& one) { return one.name == name; };
    const auto found = std::find_if(all_.rbegin(), all_.rend(), is_it);
    return found == all_.rend() ? nullptr : &*found;
  }
  bool is(std::string_view name, ExperimentOutcome outcome) const {
    const Experiment* one = find(name);
    return one != nullptr && one->outcome == outcome;
  }
  bool cured(std::string_view name) const { return is(name, ExperimentOutcome::cured); }
  bool failed(std::string_view name) const { return is(name, ExperimentOutcome::failed); }
  /// Those of windows alone, behind the last unchanged one: a replay of the step says nothing about them.
  Results windows() const {
    std::size_t first = all_.size();
    for (std::size_t i = 0; i < all_.size(); ++i) first = all_[i].name == kWindow ? i : first;
    return Results({all_.begin() + static_cast<std::ptrdiff_t>(first), all_.end()});
  }
  /// Those of the step alone.
  Results replays() const {
    const auto first =
        std::find_if(all_.begin(), all_.end(), [](const Experiment& one) { return one.name == kWindow; });
    return Results({all_.begin(), first});
  }
  bool exact() const { return failed(kUnchanged) || (window() && deterministic()); }
  bool deterministic() const { return !cured(kUnchanged); }
  /// Whole windows were run, and not the failing step alone.
  bool window() const { return failed(kWindow); }
  /// Only what says where: a sample, another batch.
  bool located() const { return cured(kSamples) || cured(kPreviousBatch) || cured(kResult) || cured(kOperand); }

 private:
  std::vector<Experiment> all_;
};

Evidence told(const Experiment& one) {
  std::string what = one.outcome == ExperimentOutcome::cured     ? "finite with "
                     : one.outcome == ExperimentOutcome::delayed ? "finite for longer, with the same growth, with "
                     : one.outcome == ExperimentOutcome::failed  ? "fails again with "
                     : one.outcome == ExperimentOutcome::not_applicable ? "says nothing: "
                     : one.outcome == ExperimentOutcome::threw          ? "did not run with "
                                                                        : "not made, the budget was spent: ";
  if (one.name == kUnchanged) what = "";
  if (one.name == kSamples) what = "";
  return {one.step, "", "replay: " + what + one.text};
}

void add(Hypothesis& hypothesis, const Results& results, std::string_view name) {
  const Experiment* one = results.find(name);
  const bool was_run = one != nullptr && (one->outcome != ExperimentOutcome::not_applicable || one->size > 0);
  if (!was_run) return;
  hypothesis.evidence.push_back(told(*one));
}

void say(Hypothesis& hypothesis, std::string text) {
  hypothesis.evidence.push_back({hypothesis.step, "", std::move(text)});
}

bool any_own(const CauseTests& tests, const Results& results, bool (Results::*is)(std::string_view) const) {
  return std::any_of(tests.own.begin(), tests.own.end(), [&](std::string_view name) { return (results.*is)(name); });
}

/// What cures it by the change itself, and not only by telling where: the name must have been read off the operands.
bool explains(const Hypothesis& hypothesis, const CauseTests& tests, const Results& results) {
  for (const std::string_view name : tests.own) {
    if (!results.cured(name)) continue;
    const bool at_the_op = name == kOperand || name == kResult;
    const bool names_itself = !tests.read_off_operands || !hypothesis.mechanism.empty();
    if (name == kSamples ? names_itself : !at_the_op || names_itself) return true;
  }
  return false;
}

bool holds(const std::vector<Hypothesis>& hypotheses, std::string_view cause) {
  return std::any_of(hypotheses.begin(), hypotheses.end(), [&](const Hypothesis& one) { return one.cause == cause; });
}

/// The rivals whose change cures too.
std::vector<std::string> curing_rivals(const Hypothesis& hypothesis, const Results& results,
                                       const std::vector<Hypothesis>& suspected) {
  std::vector<std::string> found;
  for (const Rival& rival : rivals()) {
    if (rival.cause == hypothesis.cause || !results.cured(rival.experiment)) continue;
    const CauseTests* tests = tests_of(hypothesis.cause);
    if (tests != nullptr && tests->goes_before == rival.cause) continue;
    const bool own =
        tests != nullptr && std::find(tests->own.begin(), tests->own.end(), rival.experiment) != tests->own.end();
    if (own) continue;  // it speaks for both, and for this one first
    if (rival.only_if_suspected && !holds(suspected, rival.cause)) continue;
    found.emplace_back(rival.cause);
  }
  return found;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

void confirm(Hypothesis& hypothesis) {
  hypothesis.standing = Standing::confirmed;
  hypothesis.confidence = std::max(hypothesis.confidence, kConfirmed);
}

void not_separable(Hypothesis& hypothesis, const std::vector<std::string>& from) {
  hypothesis.standing = Standing::not_separable;
  hypothesis.confidence = std::min(hypothesis.confidence, kNotSeparable);
  say(hypothesis, "the experiments do not tell it from " + joined(from) + ": both changes cure");
}

void not_tested(Hypothesis& hypothesis, const std::string& why) {
  hypothesis.standing = Standing::not_tested;
  say(hypothesis, why);
}

void refute(Hypothesis& hypothesis) {
  hypothesis.standing = Standing::refuted;
  hypothesis.confidence = std::min(hypothesis.confidence, kRefuted);
  say(hypothesis, "its own change took effect and did not cure: it is not enough alone");
}

/// A single sample is named; the place is known then, whatever the cause.
void place(Hypothesis& hypothesis, const Results& results) {
  const Experiment* samples = results.find(kSamples);
  if (samples == nullptr || samples->outcome != ExperimentOutcome::cured) return;
  if (samples->samples.size() == 1 && !hypothesis.sample) hypothesis.sample = samples->samples.front();
}

/// Smaller steps help against nearly every divergence: a change that is meant for one cause goes before.
std::vector<std::string> more_specific(const CauseTests& tests, const Results& results,
                                       const std::vector<Hypothesis>& suspected) {
  std::vector<std::string> found;
  const bool by_rate_alone = std::all_of(tests.own.begin(), tests.own.end(), [&](std::string_view name) {
    return (name == kLowerRate) == results.cured(name);
  });
  if (!by_rate_alone) return found;
  for (const Rival& rival : rivals_of_a_lower_rate()) {
    if (!results.cured(rival.experiment)) continue;
    if (rival.only_if_suspected && !holds(suspected, rival.cause)) continue;
    found.emplace_back(rival.cause);
  }
  return found;
}

/// Windows in which something else was changed, and that were cured by it.
void add_other_windows(Hypothesis& hypothesis, const CauseTests* tests, const Results& results) {
  for (const std::string_view name : {kLowerRate, kZeroGrad, kAveraged, kWarmUp, kStandardised, kLogProbabilities}) {
    const bool own = tests != nullptr && std::find(tests->own.begin(), tests->own.end(), name) != tests->own.end();
    if (!own && results.window() && results.cured(name)) add(hypothesis, results, name);
  }
}

/// What acted since an earlier step has spoilt the parameters: a repair of this step alone is no evidence.
bool began_before(const Hypothesis& hypothesis) {
  return hypothesis.onset_step && *hypothesis.onset_step < hypothesis.step;
}

/// Needs a window of steps: what one replay says is where it is bound to, no more.
void judge_window(Hypothesis& hypothesis, const CauseTests& tests, const Results& all,
                  const std::vector<Hypothesis>& suspected) {
  const Results results = all.window() ? all.windows() : all;
  for (const std::string_view name : tests.own) add(hypothesis, results, name);
  if (results.window() && any_own(tests, results, &Results::cured)) {
    const auto specific = more_specific(tests, results, suspected);
    return specific.empty() ? confirm(hypothesis) : not_separable(hypothesis, specific);
  }
  for (const std::string_view name : tests.own) {
    if (results.is(name, ExperimentOutcome::delayed)) {
      hypothesis.standing = Standing::delayed;
      return;
    }
  }
  if (results.window() && results.cured(kOtherBatch)) {
    add(hypothesis, results, kOtherBatch);
    hypothesis.standing = Standing::located;
    return say(hypothesis, "the replays say where, not why");
  }
  const bool failed = results.window() && any_own(tests, results, &Results::failed);
  if (failed && !tests.some_of_many) return refute(hypothesis);
  add(hypothesis, all, kPreviousBatch);
  add(hypothesis, all, kEarlierState);
  const std::string since =
      began_before(hypothesis) ? ", from before step " + std::to_string(*hypothesis.onset_step) : "";
  not_tested(hypothesis, "not tested: it takes " + std::string(tests.missing) + since);
}

void judge_point(Hypothesis& hypothesis, const CauseTests& tests, const Results& results,
                 const std::vector<Hypothesis>& suspected) {
  for (const std::string_view name : tests.own) add(hypothesis, results, name);
  if (std::find(tests.own.begin(), tests.own.end(), kSamples) == tests.own.end()) add(hypothesis, results, kSamples);
  add(hypothesis, results, kPreviousBatch);
  place(hypothesis, results);
  if (explains(hypothesis, tests, results)) {
    const auto others = curing_rivals(hypothesis, results, suspected);
    for (const Rival& rival : rivals()) {
      if (rival.cause != hypothesis.cause && results.cured(rival.experiment))
        add(hypothesis, results, rival.experiment);
    }
    return others.empty() ? confirm(hypothesis) : not_separable(hypothesis, others);
  }
  if (any_own(tests, results, &Results::failed) && !tests.read_off_operands) return refute(hypothesis);
  if (results.located()) {
    hypothesis.standing = Standing::located;
    if (!results.cured(kSamples)) say(hypothesis, "the replays say where, not why");
    return;
  }
  not_tested(hypothesis, "not tested: it takes " + std::string(tests.missing));
}

void judge(Hypothesis& hypothesis, const Results& results, const std::vector<Hypothesis>& suspected) {
  const CauseTests* tests = tests_of(hypothesis.cause);
  add(hypothesis, results, kUnchanged);
  if (!results.exact()) return not_tested(hypothesis, "not tested: the step cannot be run again as it was");
  if (tests == nullptr) return not_tested(hypothesis, "not tested: no experiment is known for this cause");
  const bool windows_alone = results.window() && results.find(kUnchanged) == nullptr;
  if (tests->window || windows_alone || began_before(hypothesis))
    return judge_window(hypothesis, *tests, results, suspected);
  judge_point(hypothesis, *tests, results.replays(), suspected);
}

/// Rivals that were not suspected and cure: said, so that nobody takes one of the two for proved.
void add_rivals(std::vector<Hypothesis>& hypotheses, const Results& results) {
  std::vector<Hypothesis> added;
  for (const Hypothesis& one : hypotheses) {
    if (one.standing != Standing::not_separable) continue;
    for (const std::string& cause : curing_rivals(one, results, hypotheses)) {
      if (holds(hypotheses, cause) || holds(added, cause)) continue;
      const auto rival =
          std::find_if(rivals().begin(), rivals().end(), [&](const Rival& r) { return r.cause == cause; });
      Hypothesis fresh = one;
      fresh.cause = cause;
      fresh.mechanism.clear();
      fresh.evidence.clear();
      add(fresh, results, rival->experiment);
      not_separable(fresh, {one.cause});
      fresh.description = "The step is finite with " + results.find(rival->experiment)->text + ".";
      fresh.advice = "look at this too: one change of the two is enough.";
      added.push_back(std::move(fresh));
    }
  }
  hypotheses.insert(hypotheses.end(), added.begin(), added.end());
}

Hypothesis not_reproducible(const Results& results) {
  const Experiment& unchanged = *results.find(kUnchanged);
  Hypothesis hypothesis;
  hypothesis.cause = "not_reproducible";
  hypothesis.confidence = kNotReproducible;
  hypothesis.standing = Standing::observed;
  hypothesis.step = unchanged.step;
  hypothesis.description =
      "The same step, run again from the same state, does not always fail: " + unchanged.text + ".";
  hypothesis.advice =
      "look for memory that is read before it is written, a data race in an op of your own, and faulty hardware.";
  hypothesis.evidence = {told(unchanged)};
  return hypothesis;
}

int rank(const Hypothesis& hypothesis) {
  if (hypothesis.standing == Standing::confirmed) return 0;
  return hypothesis.standing == Standing::refuted ? 2 : 1;
}

}  // namespace

std::vector<Hypothesis> judge_by_experiments(std::vector<Hypothesis> hypotheses,
                                             const std::vector<Experiment>& experiments) {
  if (experiments.empty()) return hypotheses;
  const std::vector<Hypothesis> suspected = hypotheses;
  std::vector<std::int64_t> steps;
  for (const Experiment& one : experiments) {
    if (std::find(steps.begin(), steps.end(), one.step) == steps.end()) steps.push_back(one.step);
  }
  for (const std::int64_t step : steps) {
    std::vector<Experiment> here;
    std::copy_if(experiments.begin(), experiments.end(), std::back_inserter(here),
                 [&](const Experiment& one) { return one.step == step; });
    const Results results(std::move(here));
    for (Hypothesis& one : hypotheses) {
      if (one.step != step) continue;
      judge(one, results, suspected);
      if (one.standing != Standing::confirmed) add_other_windows(one, tests_of(one.cause), results);
    }
    add_rivals(hypotheses, results);
    if (!results.deterministic()) hypotheses.push_back(not_reproducible(results));
  }
  std::stable_sort(hypotheses.begin(), hypotheses.end(), [](const Hypothesis& a, const Hypothesis& b) {
    return rank(a) != rank(b) ? rank(a) < rank(b) : a.confidence > b.confidence;
  });
  return hypotheses;
}

}  // namespace firstfault::reason
