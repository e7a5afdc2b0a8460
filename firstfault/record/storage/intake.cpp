#include "firstfault/record/storage/intake.h"

#include <algorithm>
#include <cmath>

namespace firstfault::record {

void SiteTotals::add(const Health& health, std::int64_t step) {
  if (!health.seen()) return;
  ++steps;
  if (health.bad() && nonfinite_steps++ == 0) first_nonfinite_step = step;
  rms_last = health.rms;
  if (!std::isfinite(health.rms)) return;
  if (!(rms_min <= health.rms)) rms_min = health.rms;
  if (rms_max >= health.rms) return;
  rms_max = health.rms;
  rms_max_step = step;
}

bool Batch::empty() const noexcept {
  return !setup && sites.empty() && rows.empty() && lost.rows.empty() && lost.sites.empty() && transitions.empty() &&
         facts.empty() && origins.empty() && actions.empty() && warnings.empty() && !uninspected;
}

bool Intake::admit(Kind kind) {
  const bool admitted = limits_.admit(kind);
  if (auto warning = limits_.take_warning()) pending_.warnings.push_back(std::move(*warning));
  return admitted;
}

void Intake::set_setup(Setup setup) {
  ++pending_.sequence;
  pending_.setup = std::move(setup);
}

std::int32_t Intake::add_site(const Site& site) {
  ++pending_.sequence;
  if (!admit(Kind::site)) return -1;
  pending_.sites.push_back(site);
  totals_.emplace_back();
  return static_cast<std::int32_t>(totals_.size()) - 1;
}

void Intake::add_row(StepRow row) {
  ++pending_.sequence;
  const std::int64_t step = row.step;
  if (step < pending_.steps) {
    add_warning(kStepsMustRise);
    return;
  }
  pending_.steps = step + 1;
  ++pending_.rows_seen;
  if (row.sites.size() > totals_.size()) row.sites.resize(totals_.size());
  for (std::size_t i = 0; i < row.sites.size(); ++i) totals_[i].add(row.sites[i], step);
  const auto values = static_cast<std::int64_t>(row.sites.size());
  pending_.rows.emplace_hint(pending_.rows.end(), step, std::move(row));
  retention_.add_row(step, values, lost_);
  lose_rows();
}

void Intake::lose_rows() {
  for (const std::int64_t step : lost_.sites) {
    const auto found = pending_.rows.find(step);
    if (found == pending_.rows.end()) {
      pending_.lost.sites.push_back(step);
    } else {
      std::vector<Health>().swap(found->second.sites);
    }
  }
  for (const std::int64_t step : lost_.rows) {
    if (pending_.rows.erase(step) == 0) pending_.lost.rows.push_back(step);
  }
  lost_.sites.clear();
  lost_.rows.clear();
}

void Intake::add_transition(const Transition& transition) {
  ++pending_.sequence;
  if (!admit(Kind::transition)) return;
  pending_.transitions.push_back(transition);
  retention_.add_transition(transition.step);
}

void Intake::merge_fact(const Fact& fact) {
  ++pending_.sequence;
  if (facts_.find(fact) < 0 && !admit(Kind::fact)) return;
  const std::int64_t index = facts_.merge(fact);
  pending_.facts.insert_or_assign(index, facts_.facts()[static_cast<std::size_t>(index)]);
}

void Intake::add_origin(Origin origin) {
  ++pending_.sequence;
  if (admit(Kind::origin)) pending_.origins.push_back(std::move(origin));
}

void Intake::add_action(GuardAction action) {
  ++pending_.sequence;
  if (admit(Kind::action)) pending_.actions.push_back(std::move(action));
}

void Intake::add_warning(const std::string& text) {
  ++pending_.sequence;
  if (std::find(all_warnings_.begin(), all_warnings_.end(), text) != all_warnings_.end()) return;
  if (!admit(Kind::warning)) return;
  all_warnings_.push_back(text);
  pending_.warnings.push_back(text);
}

void Intake::set_ops(std::int64_t ops) {
  ++pending_.sequence;
  pending_.ops = ops;
}

void Intake::set_uninspected(std::vector<Uninspected> uninspected) {
  ++pending_.sequence;
  pending_.uninspected = std::move(uninspected);
}

Batch Intake::take(bool with_totals) {
  Batch next;
  next.first_site = static_cast<std::int64_t>(totals_.size());
  next.steps = pending_.steps;
  next.ops = pending_.ops;
  next.rows_seen = pending_.rows_seen;
  next.sequence = pending_.sequence;
  std::swap(next, pending_);
  if (with_totals) next.totals = totals_;
  return next;
}

}  // namespace firstfault::record
