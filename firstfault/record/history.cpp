#include "firstfault/record/history.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

namespace firstfault::record {
namespace {

int rank(Outcome outcome) {
  if (outcome == Outcome::fault) return 0;
  return outcome == Outcome::swallowed ? 1 : 2;
}

}  // namespace

void sort_origins(std::vector<Origin>& origins) {
  std::set<std::int64_t> replayed;
  for (const Origin& origin : origins) {
    if (origin.replayed && origin.outcome == Outcome::fault) replayed.insert(origin.step);
  }
  std::erase_if(origins, [&](const Origin& origin) {
    return origin.evidence.role == TensorRole::compiled && replayed.contains(origin.step);
  });
  std::stable_sort(origins.begin(), origins.end(),
                   [](const Origin& a, const Origin& b) { return rank(a.outcome) < rank(b.outcome); });
}

bool History::admit(Kind kind) {
  const bool admitted = limits_.admit(kind);
  if (const auto warning = limits_.take_warning()) run_.warnings.push_back(*warning);
  return admitted;
}

std::int32_t History::add_site(const Site& site) {
  if (!admit(Kind::site)) return -1;
  run_.sites.push_back(site);
  return static_cast<std::int32_t>(run_.sites.size()) - 1;
}

void History::add_row(StepRow row) {
  const std::int64_t step = row.step;
  if (step < run_.steps) {
    add_warning(kStepsMustRise);
    return;
  }
  run_.steps = step + 1;
  if (row.sites.size() > run_.sites.size()) row.sites.resize(run_.sites.size());
  const auto values = static_cast<std::int64_t>(row.sites.size());
  rows_.emplace_hint(rows_.end(), step, std::move(row));
  Retention::Lost lost;
  retention_.add_row(step, values, lost);
  for (const std::int64_t old : lost.sites) std::vector<Health>().swap(rows_.at(old).sites);
  for (const std::int64_t old : lost.rows) rows_.erase(old);
}

void History::add_transition(const Transition& transition) {
  if (!admit(Kind::transition)) return;
  run_.transitions.push_back(transition);
  retention_.add_transition(transition.step);
}

void History::merge_fact(const Fact& fact) {
  if (facts_.find(fact) >= 0 || admit(Kind::fact)) facts_.merge(fact);
}

void History::add_origin(Origin origin) {
  if (admit(Kind::origin)) run_.origins.push_back(std::move(origin));
}

void History::add_action(GuardAction action) {
  if (admit(Kind::action)) run_.actions.push_back(std::move(action));
}

void History::add_warning(const std::string& text) {
  const auto& known = run_.warnings;
  if (std::find(known.begin(), known.end(), text) != known.end()) return;
  if (admit(Kind::warning)) run_.warnings.push_back(text);
}

Run History::snapshot() const {
  Run run = run_;
  run.rows.reserve(rows_.size());
  for (const auto& [step, row] : rows_) run.rows.push_back(row);
  run.facts = facts_.facts();
  sort_origins(run.origins);
  return run;
}

}  // namespace firstfault::record
