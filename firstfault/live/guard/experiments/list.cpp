// The experiments in their order, cheapest first, and the unchanged replay before them.
#include "firstfault/live/guard/experiments/trial.h"

namespace firstfault::guard {

namespace list {
extern const Experimenter hyperparameter, imputed, previous_batch, earlier_state, float32, operand, result, samples,
    clipped, whole_clipped, grown, initialised, averaged, zero_grad, log_probabilities, float64;
}  // namespace list

namespace {

// Free preconditions first; then batch x state; then what belongs to single ops and values. The search for samples is
// last: it may spend what is left, and a rival that was not tried is not ruled out.
const Experimenter* const kInOrder[] = {
    &list::hyperparameter, &list::imputed,  &list::previous_batch, &list::earlier_state,     &list::float32,
    &list::operand,        &list::result,   &list::clipped,        &list::whole_clipped,     &list::grown,
    &list::initialised,    &list::averaged, &list::zero_grad,      &list::log_probabilities, &list::float64,
    &list::samples,
};

void unchanged(Trial& trial, Replayer& replayer) {
  Exactness& exactness = trial.found.exactness;
  exactness = replayer.verify(trial.given.result, trial.given.unchanged);
  Experiment made;
  made.name = experiment::kUnchanged;
  made.outcome = exactness.exact           ? ExperimentOutcome::failed
                 : exactness.deterministic ? ExperimentOutcome::threw
                                           : ExperimentOutcome::cured;
  made.size = exactness.replays;
  made.text = exactness.exact ? "the step with nothing changed fails in " + std::to_string(exactness.failed) + " of " +
                                    std::to_string(exactness.replays) + " replays, bit for bit" +
                                    (exactness.compiled ? ", and in the same places when it is run op by op" : "")
                              : exactness.why;
  trial.note(made);
  trial.found.made.back().replays = exactness.replays;
}

}  // namespace

Experiments experiment(Replayer& replayer, const Circumstances& given) {
  Trial trial(replayer, given);
  unchanged(trial, replayer);
  if (!trial.found.exactness.exact) return std::move(trial.found);
  for (const Experimenter* one : kInOrder) one->make(trial);
  return std::move(trial.found);
}

}  // namespace firstfault::guard
