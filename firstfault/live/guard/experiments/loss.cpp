// The loss defined otherwise, where a fact says that it is fed what it does not take.
#include "firstfault/live/guard/experiments/op_repair.h"
#include "firstfault/live/guard/experiments/trial.h"

namespace firstfault::guard {
namespace {

void log_probabilities(Trial& trial) {
  if (!trial.given.raw_scores) return;
  OpRepairs ops({{0, OpRepair::What::log_probabilities}});
  Change change;
  change.begin = [&] { ops.start(); };
  change.end = [&] { ops.stop(); };
  trial.make(experiment::kLogProbabilities, std::move(change), "log_softmax of the scores before nll_loss");
}

}  // namespace

namespace list {
extern const Experimenter log_probabilities;
const Experimenter log_probabilities{experiment::kLogProbabilities, guard::log_probabilities};
}  // namespace list

}  // namespace firstfault::guard
