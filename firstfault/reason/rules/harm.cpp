// Finds what went wrong first.
#include "firstfault/reason/rules/harm.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace firstfault::reason {
namespace {

constexpr std::int64_t kEver = std::numeric_limits<std::int64_t>::max();

const StepRow* row_of(const Run& run, std::int64_t step) {
  const auto found = std::lower_bound(run.rows.begin(), run.rows.end(), step,
                                      [](const StepRow& row, std::int64_t wanted) { return row.step < wanted; });
  return found != run.rows.end() && found->step == step ? &*found : nullptr;
}

bool overflows(const Origin& origin) {
  return origin.mechanism.empty() || origin.mechanism == "dtype_overflow" || origin.mechanism == "reduction_overflow" ||
         origin.mechanism.starts_with("inf_") || origin.mechanism == "zero_times_inf";
}

bool holds_bad(const Run& run, const StepRow& row, SiteRole role) {
  for (std::size_t i = 0; i < row.sites.size() && i < run.sites.size(); ++i)
    if (run.sites[i].role == role && row.sites[i].bad()) return true;
  return false;
}

bool bad_row(const Run& run, const StepRow& row) {
  if (row.bad_loss()) return true;
  if (passed_over(row)) return false;
  return holds_bad(run, row, SiteRole::gradient) || holds_bad(run, row, SiteRole::parameter);
}

const Origin* first_fault(const Run& run) {
  const Origin* first = nullptr;
  for (const Origin& origin : run.origins) {
    if (origin.outcome != Outcome::fault || benign_skip(run, origin)) continue;
    if (first == nullptr || origin.step < first->step) first = &origin;
  }
  return first;
}

Series field(const std::vector<const StepRow*>& rows, double StepRow::*member, std::int64_t before) {
  Series series;
  for (const StepRow* row : rows)
    if (row->step < before && std::isfinite(row->*member)) series.push_back({row->step, row->*member});
  return series;
}

/// Where a series lay while it was calm: the lower quartile of its magnitudes, or the least of a few.
double calm(const Series& series) {
  std::vector<double> values = values_of(series);
  for (double& value : values) value = std::fabs(value);
  return values.size() < 5 ? quantile(std::move(values), 0) : quantile(std::move(values), 0.25);
}

double times_over_calm(const Series& series) {
  if (series.empty()) return 1;
  const double base = calm(series);
  double most = 0;
  for (std::size_t i = series.size() - std::min(series.size(), kLastSteps); i < series.size(); ++i)
    most = std::max(most, std::fabs(series[i].value));
  return base > 0 ? most / base : 1;
}

double most_of_last(const Series& series) {
  double most = 0;
  for (std::size_t i = series.size() - std::min(series.size(), kLastSteps); i < series.size(); ++i)
    most = std::max(most, series[i].value);
  return most;
}

/// Walking back from `end` (exclusive): the first step of those in which a series stayed above a level.
std::int64_t since(const Series& series, double edge, std::int64_t end, std::int64_t fallback) {
  std::int64_t onset = fallback;
  for (auto point = series.rbegin(); point != series.rend(); ++point) {
    if (point->step >= end) continue;
    if (!(std::fabs(point->value) > edge)) break;
    onset = point->step;
  }
  return onset;
}

/// First step of the growth that ended in `step`: of the steps just before it that moved the parameters by more than a
/// tenth of themselves; where there are none, of the loss or gradients above three times their calm level.
std::int64_t onset_of(const std::vector<const StepRow*>& rows, std::int64_t step) {
  const std::int64_t by_update = since(field(rows, &StepRow::update_ratio, step), kUnstableRatio, step, step);
  if (by_update < step) return by_update;
  const Series loss = field(rows, &StepRow::loss, step);
  const Series gradient = field(rows, &StepRow::gradient_norm, step);
  return std::min(since(loss, 3 * calm(loss), step, step), since(gradient, 3 * calm(gradient), step, step));
}

bool grew_before(const std::vector<const StepRow*>& rows, std::int64_t step) {
  const double loss = times_over_calm(field(rows, &StepRow::loss, step));
  const double gradient = times_over_calm(field(rows, &StepRow::gradient_norm, step));
  const double parameters = times_over_calm(field(rows, &StepRow::parameter_norm, step));
  const double moved = most_of_last(field(rows, &StepRow::update_ratio, step));
  if (loss >= kRunawayTimes && gradient >= kRunawayTimes) return true;
  const bool away = loss >= kGrownTimes || gradient >= kGrownTimes;
  return (away && (moved >= kMovedRatio || parameters >= kParametersTimes)) || moved >= 2 * kMovedRatio;
}

/// The loss jumped far above its level right after steps that moved the parameters by much of themselves; whether it
/// came back or not, what had been learnt was thrown away.
std::optional<std::int64_t> thrown_off(const std::vector<const StepRow*>& rows) {
  constexpr std::size_t kLevel = 16;
  constexpr std::size_t kMoved = 5;
  const Series loss = field(rows, &StepRow::loss, kEver);
  const Series update = field(rows, &StepRow::update_ratio, kEver);
  for (const Point& point : loss) {
    std::vector<double> usual = values_of(before(loss, point.step, kLevel));
    for (double& one : usual) one = std::fabs(one);
    if (usual.empty() || !(std::fabs(point.value) > kGrownTimes * median(std::move(usual)))) continue;
    if (quantile(values_of(before(update, point.step, kMoved)), 1) >= kMovedRatio) return point.step;
  }
  return std::nullopt;
}

Series part(const Series& series, bool last, std::size_t share) {
  const auto count = static_cast<std::ptrdiff_t>(std::max<std::size_t>(3, series.size() / share));
  return last ? Series(series.end() - count, series.end()) : Series(series.begin(), series.begin() + count);
}

/// The loss stayed far above what it had been until the end of the run, and gradients or parameters with it.
std::optional<std::int64_t> gone_away(const std::vector<const StepRow*>& rows) {
  constexpr std::size_t kEnough = 10;
  const Series loss = field(rows, &StepRow::loss, kEver);
  const Series gradient = field(rows, &StepRow::gradient_norm, kEver);
  const Series norm = field(rows, &StepRow::parameter_norm, kEver);
  if (loss.size() < kEnough || gradient.size() < kEnough || norm.size() < kEnough) return std::nullopt;
  const double late = quantile(values_of(part(loss, true, 10)), 0.25);
  const double base = std::max(std::fabs(median(values_of(part(loss, false, 20)))), calm(loss));
  if (!(late > kGrownTimes * base)) return std::nullopt;
  const bool steeper = median(values_of(part(gradient, true, 10))) > kGrownTimes * calm(gradient);
  if (!steeper && norm.back().value < kParametersTimes * norm.front().value) return std::nullopt;
  return since(loss, kGrownTimes * base, kEver, loss.back().step);
}

std::optional<std::int64_t> diverged(const std::vector<const StepRow*>& rows) {
  const auto off = thrown_off(rows);
  return off ? off : gone_away(rows);
}

/// A guard refused the step and ran it again: no scaler's business.
bool looked_into(const Run& run, std::int64_t step) {
  return std::any_of(run.facts.begin(), run.facts.end(),
                     [&](const Fact& fact) { return fact.kind == FactKind::experiment && fact.last_step == step; });
}

}  // namespace

bool passed_over(const StepRow& row) {
  return row.skipped || (!std::isnan(row.loss_scale) && std::isinf(row.gradient_norm) && row.update_ratio == 0);
}

bool benign_skip(const Run& run, const Origin& origin) {
  const StepRow* row = row_of(run, origin.step);
  return row != nullptr && passed_over(*row) && !looked_into(run, origin.step) && !row->bad_loss() &&
         origin.phase == Phase::backward && overflows(origin);
}

Harm find_harm(const Run& run, const std::vector<const StepRow*>& rows) {
  Harm harm;
  const Origin* origin = first_fault(run);
  const auto bad = std::find_if(run.rows.begin(), run.rows.end(), [&](const auto& row) { return bad_row(run, row); });
  if (origin != nullptr || bad != run.rows.end()) {
    harm.kind = Harm::Kind::fault;
    harm.step = bad == run.rows.end() ? origin->step : bad->step;
    if (origin != nullptr && origin->step <= harm.step) {
      harm.step = origin->step;
      harm.origin = origin;
    }
    harm.grew = grew_before(rows, harm.step);
  } else if (const auto step = diverged(rows)) {
    harm.kind = Harm::Kind::divergence;
    harm.step = *step;
    harm.grew = true;
  }
  if (harm.grew) harm.onset = onset_of(rows, harm.step);
  return harm;
}

}  // namespace firstfault::reason
