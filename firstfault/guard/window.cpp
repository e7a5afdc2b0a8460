#include "firstfault/guard/window.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace firstfault::guard {
namespace {

constexpr std::size_t kFirst = 3;  // a divergence may begin within them: the lower median
constexpr double kLeft = 100;
constexpr double kHigher = 3;
constexpr double kFloor = 1e-6;
constexpr double kLearnt = 0.1;
constexpr double kLower = 0.02;

// Of the first losses that are finite; 0 where none is.
double first_level(const std::vector<double>& losses) {
  std::vector<double> first;
  for (std::size_t i = 0; i < std::min(kFirst, losses.size()); ++i) {
    if (std::isfinite(losses[i])) first.push_back(losses[i]);
  }
  std::sort(first.begin(), first.end(), [](double a, double b) { return std::fabs(a) < std::fabs(b); });
  return first.empty() ? 0 : first[(first.size() - 1) / 2];
}

// Index of the first step that is not finite or far above the level; the size where there is none.
std::size_t left_at(const std::vector<double>& losses) {
  const double most = kLeft * std::max(kFloor, std::fabs(first_level(losses)));
  const auto left = [&](double loss) { return !(std::fabs(loss) <= most); };
  return static_cast<std::size_t>(std::find_if(losses.begin(), losses.end(), left) - losses.begin());
}

// NaN counts as Inf.
double median(std::vector<double> of) {
  for (double& one : of) one = std::isnan(one) ? std::numeric_limits<double>::infinity() : one;
  const auto middle = of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2);
  std::nth_element(of.begin(), middle, of.end());
  return *middle;
}

std::ptrdiff_t quarter(const std::vector<double>& losses) {
  return static_cast<std::ptrdiff_t>(std::max<std::size_t>(1, losses.size() / 4));
}

double start_of(const std::vector<double>& losses) {
  return median({losses.begin(), losses.begin() + quarter(losses)});
}
double end_of(const std::vector<double>& losses) { return median({losses.end() - quarter(losses), losses.end()}); }

// A loss that falls below zero and on does not.
bool ends_higher(const std::vector<double>& losses) {
  const double from = first_level(losses);
  return !(end_of(losses) <= from + (kHigher - 1) * std::max(kFloor, std::fabs(from)));
}

// A loss may be negative: it falls by a share of its size.
bool falls(double from, double to, double share) { return to < from - share * std::fabs(from); }

WindowRun before_its_end(WindowRun window) {
  window.losses.pop_back();
  return window;
}

bool shows_the_same(const WindowRun& unchanged, const WindowRun& changed) {
  if (!unchanged.causes || !changed.causes) return true;
  const auto& known = *unchanged.causes;
  const auto again = [&](const std::string& cause) {
    return std::find(known.begin(), known.end(), cause) != known.end();
  };
  return (unchanged.nonfinite && changed.nonfinite) ||
         std::any_of(changed.causes->begin(), changed.causes->end(), again);
}

bool learns(const std::vector<double>& unchanged, const std::vector<double>& changed) {
  const bool learnt = falls(start_of(unchanged), end_of(unchanged), kLearnt);
  return learnt || falls(end_of(unchanged), end_of(changed), kLower);
}

}  // namespace

bool diverges(const WindowRun& window) {
  const std::vector<double>& losses = window.losses;
  if (losses.empty()) return false;
  const bool comes_back = window.causes && std::isfinite(losses.back());
  return (!comes_back && left_at(losses) < losses.size()) || ends_higher(losses);
}

bool shows_a_fault(const WindowRun& window) { return diverges(window) || (window.causes && !window.healthy()); }

ExperimentOutcome judge_window(const WindowRun& unchanged, const WindowRun& changed, std::int64_t steps) {
  if (changed.losses.empty()) return ExperimentOutcome::not_applicable;
  const bool left = diverges(changed);
  if (changed.threw && !diverges(before_its_end(changed))) return ExperimentOutcome::threw;
  if (!left && changed.made() < steps) return ExperimentOutcome::not_applicable;
  if (diverges(unchanged)) {
    if (!left) return ExperimentOutcome::cured;
    const bool later = left_at(changed.losses) > left_at(unchanged.losses);
    return later ? ExperimentOutcome::delayed : ExperimentOutcome::failed;
  }
  const bool learnt = learns(unchanged.losses, changed.losses);
  if (!left && changed.healthy() && (unchanged.nonfinite || learnt)) return ExperimentOutcome::cured;
  return !left && learnt && !shows_the_same(unchanged, changed) ? ExperimentOutcome::not_applicable
                                                                : ExperimentOutcome::failed;
}

}  // namespace firstfault::guard
