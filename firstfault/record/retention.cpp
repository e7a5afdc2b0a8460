#include "firstfault/record/retention.h"

#include <algorithm>

namespace firstfault::record {

bool Retention::changed(std::int64_t step) const { return step == last_changed_; }

bool Retention::near_transition(std::int64_t step) const {
  // Of ascending centres, the last is the nearest to a row that is newer than all but perhaps that one.
  return !centres_.empty() && step >= centres_.back() - options_.around && step <= centres_.back() + options_.around;
}

void Retention::pin_surroundings(Row& row, std::int64_t spare) {
  row.pinned = true;
  if (row.with_sites || around_values_ + row.values > options_.health_values / 4 - spare) return;
  around_values_ += row.values;
  row.with_sites = true;
}

void Retention::add_row(std::int64_t step, std::int64_t health_values, Lost& lost) {
  Row row{.step = step, .ordinal = ordinal_++, .values = health_values};
  if (row.ordinal < options_.first) {
    row.pinned = true;
    row.with_sites = first_values_ + row.values <= options_.health_values / 4;
    if (row.with_sites) first_values_ += row.values;
  }
  if (near_transition(step)) pin_surroundings(row, 0);
  row.pinned = row.pinned || changed(step);
  window_.push_back(row);
  window_values_ += row.values;
  while (window_.size() > static_cast<std::size_t>(options_.newest) ||
         (window_values_ > options_.health_values / 2 && window_.size() > 1)) {
    retire_oldest(lost);
  }
  while (rows() > options_.rows && stride_ < (std::int64_t{1} << 62)) thin(lost);
}

void Retention::add_transition(std::int64_t step) {
  if (step <= last_changed_) return;
  const bool surroundings = centres_.size() < static_cast<std::size_t>(options_.surroundings);
  if (surroundings) {
    centres_.push_back(step);
    // The nearest first, and room for the step's own, where it is still to come.
    for (auto row = window_.rbegin(); row != window_.rend(); ++row) {
      if (near_transition(row->step)) pin_surroundings(*row, row->step < step ? row->values : 0);
    }
  }
  if (changed_rows_ >= options_.changed_rows) return;
  ++changed_rows_;
  last_changed_ = step;
  const auto found = std::lower_bound(window_.begin(), window_.end(), step,
                                      [](const Row& row, std::int64_t wanted) { return row.step < wanted; });
  if (found != window_.end() && found->step == step) found->pinned = true;
}

void Retention::retire_oldest(Lost& lost) {
  const Row row = window_.front();
  window_.pop_front();
  window_values_ -= row.values;
  if (!row.pinned && row.ordinal % stride_ != 0) {
    lost.rows.push_back(row.step);
    return;
  }
  if (!row.with_sites && row.values > 0) lost.sites.push_back(row.step);
  kept_.push_back(row);
}

void Retention::thin(Lost& lost) {
  stride_ *= 2;
  const auto stays = [&](const Row& row) { return row.pinned || row.ordinal % stride_ == 0; };
  for (const Row& row : kept_) {
    if (!stays(row)) lost.rows.push_back(row.step);
  }
  std::erase_if(kept_, [&](const Row& row) { return !stays(row); });
}

}  // namespace firstfault::record
