// The run in memory, bounded: what a watched run fills while it trains.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "firstfault/record/fact_table.h"
#include "firstfault/record/limits.h"
#include "firstfault/record/retention.h"
#include "firstfault/record/run.h"

namespace firstfault::record {

/// Memory is flat over any number of steps: RetentionOptions says which rows stay, limits.h how much of the rest; where
/// a limit is reached, a warning in the run says so. No lock inside: it has one owner, who calls from one thread at a
/// time. Nothing here throws but std::bad_alloc.
class History {
 public:
  explicit History(const RetentionOptions& options = {}) : retention_(options) {}

  void set_setup(Setup setup) { run_.setup = std::move(setup); }
  /// Index of the site in StepRow::sites and Transition::site; -1: there are kMaxSites already, leave it out.
  std::int32_t add_site(const Site& site);
  /// Steps must rise; one that does not is left out, with a warning.
  void add_row(StepRow row);
  void add_transition(const Transition& transition);
  void merge_fact(const Fact& fact);
  void add_origin(Origin origin);
  void add_action(GuardAction action);
  void add_warning(const std::string& text);  ///< the same text once only
  void set_ops(std::int64_t ops) { run_.ops = ops; }
  void set_uninspected(std::vector<Uninspected> uninspected) { run_.uninspected = std::move(uninspected); }
  void set_state(RunState state) { run_.state = state; }

  /// A copy, as read_run gives it from the run file of the same run.
  Run snapshot() const;

  std::int64_t steps() const noexcept { return run_.steps; }
  std::int64_t rows() const noexcept { return static_cast<std::int64_t>(rows_.size()); }

 private:
  bool admit(Kind kind);

  Run run_;  ///< all but rows and facts
  std::map<std::int64_t, StepRow> rows_;
  FactTable facts_;
  Retention retention_;
  Limits limits_;
};

/// Faults first, then swallowed, then notes; else the order as it is. What Run::origins promises. A compiled region is
/// left out where a replay of its step, op by op, named the op.
void sort_origins(std::vector<Origin>& origins);

}  // namespace firstfault::record
