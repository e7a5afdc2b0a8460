// The batch of the last good step, on the state of this one: what cures is bound to the batch.
#include "firstfault/live/guard/experiments/trial.h"

namespace firstfault::guard {
namespace {

void make(Trial& trial) {
  const BatchTensors& previous = trial.given.previous;
  if (previous.size() != trial.batch().size() || previous.empty()) {
    return trial.not_applicable(experiment::kPreviousBatch, "there is no earlier batch to run the step on");
  }
  Change change;
  change.batch = [&](const BatchTensors&) {
    BatchTensors copies;
    for (const at::Tensor& tensor : previous) {
      copies.push_back(unseen_copy(tensor));
      if (tensor.defined() && tensor.requires_grad()) copies.back().set_requires_grad(true);
    }
    return copies;
  };
  trial.make(experiment::kPreviousBatch, std::move(change), "the batch of the last good step, on this step's state");
}

}  // namespace

namespace list {
extern const Experimenter previous_batch;
const Experimenter previous_batch{experiment::kPreviousBatch, make};
}  // namespace list

}  // namespace firstfault::guard
