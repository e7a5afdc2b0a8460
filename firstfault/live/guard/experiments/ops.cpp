// The op of the first fault repaired: what it read made ordinary, or else what it gave made finite, and what comes
// next likewise.
#include <algorithm>

#include "firstfault/live/guard/experiments/op_repair.h"
#include "firstfault/live/guard/experiments/trial.h"

namespace firstfault::guard {
namespace {

constexpr std::size_t kMostOps = 4;

std::string dispatched(const Origin& origin) { return origin.inner_op.empty() ? origin.op : origin.inner_op; }

// Also one that the step calls before the model: what prepares its batch.
bool made_by_an_op(const Origin* origin) {
  return origin != nullptr && origin->op_number > 0 && !origin->op.empty() && origin->evidence.role == TensorRole::none;
}

struct Repaired {
  std::optional<ReplayResult> result;
  std::int64_t changed = 0;
};

Repaired run(Trial& trial, std::string_view name, const std::vector<OpRepair>& repairs) {
  OpRepairs ops(repairs);
  Change change;
  change.name = name;
  change.begin = [&] { ops.start(); };
  change.end = [&] { ops.stop(); };
  Repaired repaired;
  repaired.result = trial.run(std::move(change));
  repaired.changed = ops.changed();
  return repaired;
}

std::string place_of(const Origin& origin) {
  return origin.op + (origin.module.empty() ? std::string() : " in " + origin.module);
}

// The op of the first fault, then that of what is left, up to four; `ordinary`: by what they read, where they have a
// domain.
void repair(Trial& trial, std::string_view name, bool ordinary) {
  const Origin* next = trial.origin();
  Experiment made;
  made.name = name;
  made.op = next->op;
  std::vector<OpRepair> repairs;
  Repaired last;
  do {
    const auto known = [&](const OpRepair& one) { return one.number == next->op_number; };
    if (std::any_of(repairs.begin(), repairs.end(), known)) break;
    const bool operand = ordinary && has_domain(dispatched(*next));
    repairs.push_back({next->op_number, operand ? OpRepair::What::operand : OpRepair::What::result});
    made.text += made.text.empty() ? "" : ", and ";
    made.text += operand ? "what " + place_of(*next) + " reads made ordinary"
                         : "the result of " + place_of(*next) + " made finite";
    last = run(trial, name, repairs);
    made.outcome = last.result && last.changed == 0 ? ExperimentOutcome::not_applicable : outcome_of(last.result);
    if (made.outcome != ExperimentOutcome::failed) break;
    next = first_fault(*last.result);
  } while (made_by_an_op(next) && repairs.size() < kMostOps);
  made.size = static_cast<std::int64_t>(repairs.size());
  trial.note(std::move(made));
}

void operand(Trial& trial) {
  const Origin* origin = trial.origin();
  if (!made_by_an_op(origin) || !has_domain(dispatched(*origin))) {
    return trial.not_applicable(experiment::kOperand, "the first fault is not an op with a domain");
  }
  repair(trial, experiment::kOperand, true);
}

void result(Trial& trial) {
  if (trial.cured(experiment::kOperand)) return;  // says no more than that
  if (!made_by_an_op(trial.origin())) {
    return trial.not_applicable(experiment::kResult, "the first fault was not made by an op");
  }
  repair(trial, experiment::kResult, false);
}

}  // namespace

namespace list {
extern const Experimenter operand, result;
const Experimenter operand{experiment::kOperand, guard::operand};
const Experimenter result{experiment::kResult, guard::result};
}  // namespace list

}  // namespace firstfault::guard
