// The smallest set of samples that fails alone, with the rest of the batch healthy.
#include <algorithm>
#include <numeric>

#include "firstfault/guard/failing_set.h"
#include "firstfault/live/guard/experiments/rows.h"
#include "firstfault/live/guard/experiments/trial.h"

namespace firstfault::guard {
namespace {

std::string listed(const std::vector<std::int64_t>& samples) {
  std::string text;
  for (const auto one : samples) text += (text.empty() ? "" : ", ") + std::to_string(one);
  return text;
}

class Question {
 public:
  Question(Trial& trial, Rows rows)
      : trial_(trial), rows_(std::move(rows)), replaces_(rows_.alike(trial.batch(), trial.given.previous)) {}

  bool replaces() const { return replaces_; }
  std::int64_t count() const { return rows_.count; }
  bool spent() const { return spent_; }

  std::optional<bool> fails(const std::vector<std::int64_t>& kept) {
    if (kept.empty() && !replaces_) return false;
    if (static_cast<std::int64_t>(kept.size()) == rows_.count) return true;  // the step itself
    Change change;
    change.name = experiment::kSamples;
    change.batch = [&](const BatchTensors& batch) {
      return replaces_ ? with_rows_of(batch, trial_.given.previous, rows_, kept) : only_rows(batch, rows_, kept);
    };
    const auto result = trial_.run(std::move(change));
    spent_ = !result;
    if (!result || result->threw) return std::nullopt;
    return !result->finite;
  }

 private:
  Trial& trial_;
  const Rows rows_;
  const bool replaces_;
  bool spent_ = false;
};

// What the trace of the step says already needs two replays only.
bool alone_to_blame(Question& question, std::int64_t sample) {
  if (sample < 0 || sample >= question.count() || question.count() < 2) return false;
  std::vector<std::int64_t> rest(static_cast<std::size_t>(question.count()));
  std::iota(rest.begin(), rest.end(), 0);
  std::erase(rest, sample);
  return question.fails({sample}).value_or(false) && !question.fails(rest).value_or(true);
}

FailingSets blame(Trial& trial, Question& question) {
  const Origin* origin = trial.origin();
  if (origin != nullptr && origin->sample && alone_to_blame(question, *origin->sample)) {
    return {Blame::some, {{*origin->sample}}, 2};
  }
  const std::optional<bool> empty = trial.cured(experiment::kPreviousBatch) ? std::optional(false) : std::nullopt;
  return smallest_failing_sets(
      question.count(), [&](const std::vector<std::int64_t>& kept) { return question.fails(kept); }, empty);
}

std::string told(const FailingSets& found, bool replaced) {
  const std::string how = replaced ? "replaced by those of the previous batch" : "left out";
  if (found.blame == Blame::all) return "every sample alone makes the step fail, or nearly: no one in particular";
  if (found.blame == Blame::together) return "it takes all samples together, or nearly: no one in particular";
  if (found.blame == Blame::none) return "the step fails whichever samples are " + how;
  if (found.blame == Blame::undecided) return "samples " + how + ": no answer, some of these steps did not run";
  std::string text;
  for (const auto& set : found.sets) {
    text += text.empty() ? "" : "; ";
    text += set.size() == 1 ? "sample " + listed(set) + " alone" : "samples " + listed(set) + ", but only together";
  }
  const bool one = found.sets.size() == 1 && found.sets[0].size() == 1;
  text += one ? " makes the step fail; with " : " make the step fail; with ";
  text += one ? "it " : "them ";
  return text + how + " it is finite";
}

void make(Trial& trial) {
  Rows rows = rows_of(trial.batch());
  if (rows.count < 2) return trial.not_applicable(experiment::kSamples, "no axis of samples was found in the batch");
  const Experiment* swapped = trial.find(experiment::kPreviousBatch);
  if (swapped != nullptr && swapped->outcome == ExperimentOutcome::failed) {
    return trial.not_applicable(experiment::kSamples, "the step fails on another batch too");
  }
  Question question(trial, std::move(rows));
  const auto on_cpu = [](const at::Tensor& tensor) { return !tensor.defined() || tensor.is_cpu(); };
  if (!question.replaces() && !std::all_of(trial.batch().begin(), trial.batch().end(), on_cpu)) {
    // An index that points at nothing is an exception on the CPU; on CUDA it ends the process.
    return trial.not_applicable(experiment::kSamples, "samples are left out only of a batch on the CPU");
  }
  const FailingSets found = blame(trial, question);
  Experiment made;
  made.name = experiment::kSamples;
  made.outcome = found.blame == Blame::some        ? ExperimentOutcome::cured
                 : found.blame != Blame::undecided ? ExperimentOutcome::failed
                 : question.spent()                ? ExperimentOutcome::out_of_budget
                                                   : ExperimentOutcome::threw;
  made.samples = found.samples();
  made.size = static_cast<std::int64_t>(found.sets.size());
  made.text = question.spent() ? "the smallest set of samples that fails" : told(found, question.replaces());
  trial.note(std::move(made));
}

}  // namespace

namespace list {
extern const Experimenter samples;
const Experimenter samples{experiment::kSamples, make};
}  // namespace list

}  // namespace firstfault::guard
