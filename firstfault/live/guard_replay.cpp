// A faulty step under guard is run again: where it began, and with one thing changed each.
#include <algorithm>
#include <cstdio>
#include <utility>

#include <torch/optim/optimizer.h>

#include "firstfault/base/names.h"
#include "firstfault/live/guard_parts.h"

namespace firstfault {

void Guard::State::find_origin(GuardFault& fault) {
  for (Origin& origin : watch.run().origins) {
    if (!origin.sink.empty() && origin.step >= fault.step) fault.origins.push_back(std::move(origin));
  }
}

// A step that writes into its batch cannot be run again the first time.
void Guard::State::look_at_batch(const guard::BatchTensors& batch) {
  if (writes_batch) return;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (guard::version_of(batch[i]) != batch_versions[i]) writes_batch = true;
  }
  began.batch_intact = !writes_batch;
}

void Guard::State::look_into(GuardFault& fault, guard::Replayer& replayer, const guard::ReplayResult& result) {
  const Run recorded = watch.run();
  guard::Circumstances given;
  given.step = fault.step;
  given.result = result;
  given.previous = memory.previous();
  given.ranges = memory.ranges();
  given.batches = memory.batches();
  given.raw_scores = holds(recorded, FactKind::raw_scores);
  given.own = own_changes(fault, recorded);
  given.unchanged = std::max(2, options.replays);
  given.max_replays = options.max_replays;
  given.max_seconds = options.max_seconds;
  guard::Experiments done = guard::experiment(replayer, given);
  // A hyperparameter was refused before it could do harm: then there is nothing to cure.
  if (fault.finding.kind == guard::Kind::hyperparameter && done.exactness.failed == 0) done.made.clear();
  learn(fault, std::move(done.exactness), done.made);
  looked_into.add(fault.kind(), fault.origin());
}

// What replays have shown, which the watch is told.
void Guard::State::learn(GuardFault& fault, guard::Exactness exactness, const std::vector<Experiment>& made) {
  say_once(exactness);
  const bool known = !fault.origins.empty();
  for (Origin& origin : exactness.origins) {
    if (!known && !origin.sink.empty()) fault.origins.push_back(std::move(origin));
  }
  watch.learned(fault.step, known ? std::vector<Origin>() : fault.origins, made);
}

void Guard::State::say_once(const guard::Exactness& exactness) {
  if (exactness.exact || !exactness.deterministic || std::exchange(said_inexact, true)) return;
  std::fprintf(stderr, "firstfault: this step cannot be run again exactly, so that no cause is proved: %s\n",
               printable(exactness.why).c_str());
}

void Guard::State::replay(GuardFault& fault, const at::Tensor& loss) {
  const bool tries = looked_into.wants(fault.kind(), fault.origin());
  const bool seeks = !tries && fault.origins.empty() && looked_into.may_search();
  const bool wanted = on_replay || tries || seeks;
  if (!wanted || options.on_fault == OnFault::warn || (fault.written && program.copy() == nullptr)) return;
  const bool write = fault.written || fault.finding.kind == guard::Kind::hyperparameter;
  if (write) program.make_copy();
  began.buffers = buffers;
  began.gradients = left_over.gradients(held, began.gradients_intact);
  if (write) began.written = guard::Copies(held);
  program.pause();
  const auto result = guard::result_now(began, loss, fault.written);
  try {
    guard::Replayer replayer(
        began, program, [&](const auto& body) { return watch.aside(body); }, write);
    if (tries) {
      look_into(fault, replayer, result);
    } else if (seeks) {
      learn(fault, replayer.verify(result, options.replays), {});
    }
    if (on_replay) on_replay(replayer, result);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "firstfault: step %lld could not be replayed: %s\n", static_cast<long long>(fault.step),
                 printable(error.what()).c_str());
  }
}

}  // namespace firstfault
