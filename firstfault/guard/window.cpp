#include "firstfault/guard/window.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace firstfault::guard {
namespace {

constexpr std::size_t kFirst = 3;  // a divergence may begin within them: the lower median
constexpr double kLeft = 100;
constexpr double kHigher = 3;
constexpr double kFloor = 1e-6;
constexpr double kLearnt = 0.1;
constexpr double kLower = 0.02;

double level(const std::vector<double>& losses) {
  std::vector<double> first;
  for (std::size_t i = 0; i < std::min(kFirst, losses.size()); ++i) {
    if (std::isfinite(losses[i])) first.push_back(std::fabs(losses[i]));
  }
  std::sort(first.begin(), first.end());
  return first.empty() ? kFloor : std::max(kFloor, first[(first.size() - 1) / 2]);
}

// Index of the first step that is not finite or far above the level; the size where there is none.
std::size_t left_at(const std::vector<double>& losses) {
  const double most = kLeft * level(losses);
  const auto left = [&](double loss) { return !(std::fabs(loss) <= most); };
  return static_cast<std::size_t>(std::find_if(losses.begin(), losses.end(), left) - losses.begin());
}

double median(std::vector<double> of) {
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

bool ends_higher(const std::vector<double>& losses) {
  std::vector<double> sizes = losses;
  for (double& one : sizes) one = std::fabs(one);
  return end_of(sizes) > kHigher * level(losses);
}

// A loss may be negative: it falls by a share of its size.
bool falls(double from, double to, double share) { return to < from - share * std::fabs(from); }

bool learns(const std::vector<double>& unchanged, const std::vector<double>& changed) {
  const bool learnt = falls(start_of(unchanged), end_of(unchanged), kLearnt);
  return learnt || falls(end_of(unchanged), end_of(changed), kLower);
}

}  // namespace

bool diverges(const WindowRun& window) {
  const std::vector<double>& losses = window.losses;
  if (losses.empty()) return false;
  const bool comes_back = window.healthy && std::isfinite(losses.back());
  return (!comes_back && left_at(losses) < losses.size()) || ends_higher(losses);
}

bool shows_a_fault(const WindowRun& window) { return diverges(window) || !window.healthy.value_or(true); }

ExperimentOutcome judge_window(const WindowRun& unchanged, const WindowRun& changed) {
  if (changed.losses.empty()) return ExperimentOutcome::not_applicable;
  const bool left = diverges(changed);
  if (diverges(unchanged)) {
    if (!left) return ExperimentOutcome::cured;
    const bool later = left_at(changed.losses) > left_at(unchanged.losses);
    return later ? ExperimentOutcome::delayed : ExperimentOutcome::failed;
  }
  const bool better = unchanged.nonfinite || learns(unchanged.losses, changed.losses);
  const bool cured = !left && changed.healthy.value_or(false) && better;
  return cured ? ExperimentOutcome::cured : ExperimentOutcome::failed;
}

}  // namespace firstfault::guard
