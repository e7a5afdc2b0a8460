// Values of the batch altered: what is not finite replaced, what is out of the range of earlier batches clipped, the
// previous batch appended.
#include <algorithm>
#include <cmath>

#include <ATen/ops/isfinite.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/record_function.h>

#include "firstfault/base/numbers.h"
#include "firstfault/live/guard/experiments/rows.h"
#include "firstfault/live/guard/experiments/trial.h"

namespace firstfault::guard {
namespace {

bool floating(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_floating_point() && tensor.layout() == at::kStrided;
}

at::Tensor again(const at::Tensor& made, const at::Tensor& of) {
  return of.requires_grad() ? made.detach().requires_grad_(true) : made;
}

std::int64_t unequal(const at::Tensor& a, const at::Tensor& b) { return a.ne(b).sum().item<std::int64_t>(); }

void imputed(Trial& trial) {
  std::int64_t bad = 0;
  {
    const at::DisableRecordFunctionGuard unobserved;
    for (const at::Tensor& tensor : trial.batch()) {
      if (floating(tensor)) bad += tensor.numel() - at::isfinite(tensor).sum().item<std::int64_t>();
    }
  }
  if (bad == 0) return trial.not_applicable(experiment::kBatchImputed, "the batch is finite");
  Change change;
  change.batch = [](BatchTensors batch) {
    for (at::Tensor& tensor : batch) {
      if (floating(tensor)) tensor = again(at::nan_to_num(tensor.detach(), 0.0, 0.0, 0.0), tensor);
    }
    return batch;
  };
  trial.make(experiment::kBatchImputed, std::move(change),
             "the " + std::to_string(bad) + " values of the batch that are not finite, replaced by 0");
}

void clip(Trial& trial, std::string_view name, bool whole) {
  const auto& ranges = trial.given.ranges;
  if (trial.given.batches < BatchMemory::kEnough || ranges.size() != trial.batch().size()) {
    return trial.not_applicable(name, "too few earlier batches to know the range of values");
  }
  std::int64_t outside = 0;
  std::string where;
  {
    const at::DisableRecordFunctionGuard unobserved;
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      const at::Tensor& tensor = trial.batch()[i];
      const at::Tensor made = clipped_to(ranges[i], tensor, whole);
      if (!made.defined()) continue;
      outside += unequal(made, tensor.detach()) - unequal(made, made);
      where += (where.empty() ? "" : "; ") + std::string("tensor ") + std::to_string(i) + " of the batch, " +
               show_number(ranges[i]->least) + " to " + show_number(ranges[i]->greatest) + " before";
    }
  }
  if (outside == 0) {
    return trial.not_applicable(name, "no value is outside of the range of earlier batches");
  }
  Change change;
  change.batch = [&](BatchTensors batch) {
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const at::Tensor made = clipped_to(ranges[i], batch[i], whole);
      if (made.defined()) batch[i] = again(made, batch[i]);
    }
    return batch;
  };
  trial.make(name, std::move(change),
             std::to_string(outside) + (whole ? " whole numbers" : " values") +
                 " clipped to the range of earlier batches (" + where + ")");
  trial.found.made.back().size = outside;
}

void grow(Trial& trial) {
  const Experiment* swapped = trial.find(experiment::kPreviousBatch);
  if (swapped != nullptr && swapped->outcome == ExperimentOutcome::failed) {
    return trial.not_applicable(experiment::kBatchGrown, "the step fails on the previous batch too");
  }
  const Rows rows = rows_of(trial.batch());
  if (rows.count == 0 || trial.given.previous.empty()) {
    return trial.not_applicable(experiment::kBatchGrown, "there is no earlier batch to append");
  }
  Change change;
  change.batch = [&](const BatchTensors& batch) {
    BatchTensors made = appended(batch, trial.given.previous, rows);
    return made.empty() ? batch : made;
  };
  {
    const at::DisableRecordFunctionGuard unobserved;
    if (appended(trial.batch(), trial.given.previous, rows).empty()) {
      return trial.not_applicable(experiment::kBatchGrown, "the previous batch has other shapes");
    }
  }
  trial.make(experiment::kBatchGrown, std::move(change), "the previous batch appended to this one");
}

}  // namespace

namespace list {
extern const Experimenter imputed, clipped, whole_clipped, grown;
const Experimenter imputed{experiment::kBatchImputed, guard::imputed};
const Experimenter clipped{experiment::kBatchClipped, [](Trial& t) { clip(t, experiment::kBatchClipped, false); }};
const Experimenter whole_clipped{experiment::kWholeClipped, [](Trial& t) { clip(t, experiment::kWholeClipped, true); }};
const Experimenter grown{experiment::kBatchGrown, guard::grow};
}  // namespace list

}  // namespace firstfault::guard
