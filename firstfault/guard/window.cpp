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

bool ends_higher(const std::vector<double>& losses) {
  std::vector<double> last(losses.end() - static_cast<std::ptrdiff_t>(std::max<std::size_t>(1, losses.size() / 4)),
                           losses.end());
  for (double& one : last) one = std::fabs(one);
  const auto middle = last.begin() + static_cast<std::ptrdiff_t>(last.size() / 2);
  std::nth_element(last.begin(), middle, last.end());
  return *middle > kHigher * level(losses);
}

}  // namespace

bool left_its_level(const std::vector<double>& losses) {
  return !losses.empty() && (left_at(losses) < losses.size() || ends_higher(losses));
}

ExperimentOutcome judge_window(const std::vector<double>& unchanged, const std::vector<double>& changed) {
  if (changed.empty()) return ExperimentOutcome::not_applicable;
  if (!left_its_level(changed)) return ExperimentOutcome::cured;
  return left_at(changed) > left_at(unchanged) ? ExperimentOutcome::delayed : ExperimentOutcome::failed;
}

}  // namespace firstfault::guard
