// What came in for the run file and is not written yet. Bounded by the same rules as the run in memory, so that a disk
// that hangs costs no more memory than a second copy of it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "firstfault/record/fact_table.h"
#include "firstfault/record/limits.h"
#include "firstfault/record/retention.h"
#include "firstfault/record/run.h"

namespace firstfault::record {

/// Of one site, over all steps.
struct SiteTotals {
  std::int64_t steps = 0;
  std::int64_t nonfinite_steps = 0;
  std::int64_t first_nonfinite_step = -1;
  float rms_last = Health::kAbsent, rms_min = Health::kAbsent, rms_max = Health::kAbsent;  ///< of finite values
  std::int64_t rms_max_step = -1;

  void add(const Health& health, std::int64_t step);
};

/// One transaction's worth.
struct Batch {
  std::optional<Setup> setup;
  std::vector<Site> sites;
  std::int64_t first_site = 0;  ///< index of sites[0]
  std::map<std::int64_t, StepRow> rows;
  Retention::Lost lost;  ///< rows that the file has, or gets with an earlier batch
  std::vector<Transition> transitions;
  std::map<std::int64_t, Fact> facts;  ///< by index; whole, to replace what the file has
  std::vector<Origin> origins;
  std::vector<GuardAction> actions;
  std::vector<std::string> warnings;
  std::optional<std::vector<Uninspected>> uninspected;
  std::vector<SiteTotals> totals;  ///< of all sites, where asked for
  std::int64_t steps = 0, ops = 0, rows_seen = 0;
  std::uint64_t sequence = 0;  ///< of the last change in it

  bool empty() const noexcept;
};

/// No lock: RunFile holds one around it.
class Intake {
 public:
  explicit Intake(const RetentionOptions& options) : retention_(options) {}

  void set_setup(Setup setup);
  std::int32_t add_site(const Site& site);
  void add_row(StepRow row);
  void add_transition(const Transition& transition);
  void merge_fact(const Fact& fact);
  void add_origin(Origin origin);
  void add_action(GuardAction action);
  void add_warning(const std::string& text);
  void set_ops(std::int64_t ops);
  void set_uninspected(std::vector<Uninspected> uninspected);

  std::uint64_t sequence() const noexcept { return pending_.sequence; }  ///< counts changes
  Batch take(bool with_totals);

 private:
  bool admit(Kind kind);
  void lose_rows();

  Batch pending_;
  FactTable facts_;
  std::vector<SiteTotals> totals_;
  std::vector<std::string> all_warnings_;
  Retention retention_;
  Retention::Lost lost_;
  Limits limits_;
};

}  // namespace firstfault::record
