// Finds what went wrong first.
#include "firstfault/reason/rules/harm.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace firstfault::reason {
namespace {

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
  if (row.skipped) return false;
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

/// First step from which on the gradient norm stayed above three times its calm level until the end.
std::int64_t onset_of(const Series& series, std::int64_t fallback) {
  const double edge = 3 * calm(series);
  std::int64_t onset = fallback;
  for (auto point = series.rbegin(); point != series.rend() && std::fabs(point->value) > edge; ++point)
    onset = point->step;
  return onset;
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

/// The loss stayed far above what it had been, and so did the gradients, until the end of the run.
std::optional<std::int64_t> diverged(const std::vector<const StepRow*>& rows) {
  constexpr std::size_t kEnough = 10;
  const Series loss = field(rows, &StepRow::loss, std::numeric_limits<std::int64_t>::max());
  const Series gradient = field(rows, &StepRow::gradient_norm, std::numeric_limits<std::int64_t>::max());
  if (loss.size() < kEnough || gradient.size() < kEnough) return std::nullopt;
  const auto tail = [](const Series& series) {
    const std::size_t count = std::max<std::size_t>(3, series.size() / 10);
    return Series(series.end() - static_cast<std::ptrdiff_t>(count), series.end());
  };
  const auto head = [](const Series& series) {
    const std::size_t count = std::max<std::size_t>(3, series.size() / 20);
    return Series(series.begin(), series.begin() + static_cast<std::ptrdiff_t>(count));
  };
  const double late = quantile(values_of(tail(loss)), 0.25);
  const double base = std::max(std::fabs(median(values_of(head(loss)))), calm(loss));
  if (!(late > kGrownTimes * base)) return std::nullopt;
  if (!(median(values_of(tail(gradient))) > kGrownTimes * calm(gradient))) return std::nullopt;
  std::int64_t step = loss.back().step;
  for (auto point = loss.rbegin(); point != loss.rend() && point->value > kGrownTimes * base; ++point)
    step = point->step;
  return step;
}

}  // namespace

bool benign_skip(const Run& run, const Origin& origin) {
  const StepRow* row = row_of(run, origin.step);
  return row != nullptr && row->skipped && !row->bad_loss() && origin.phase == Phase::backward && overflows(origin);
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
  if (harm.grew) {
    const std::int64_t end = harm.kind == Harm::Kind::fault ? harm.step : std::numeric_limits<std::int64_t>::max();
    harm.onset = onset_of(field(rows, &StepRow::gradient_norm, end), harm.step);
  }
  return harm;
}

}  // namespace firstfault::reason
