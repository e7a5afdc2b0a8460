// A run whose loss stands still.
#include "firstfault/reason/rules/stuck.h"

#include <cmath>

namespace firstfault::reason {

std::optional<Stuck> stuck(const Reading& reading) {
  if (reading.harm().kind != Harm::Kind::none) return std::nullopt;
  const Series update = reading.series(&StepRow::update_ratio);
  const Series gradient = reading.series(&StepRow::gradient_norm);
  if (update.size() < kStuckSteps || gradient.empty() || median(values_of(gradient)) == 0) return std::nullopt;
  const auto half = static_cast<std::ptrdiff_t>(update.size() / 2);
  const double late = median(values_of({update.begin() + half, update.end()}));
  const double early = median(values_of({update.begin(), update.begin() + half}));
  if (!(late < kStuckUpdate)) return std::nullopt;
  double total = 0;
  for (const Point& point : update) total += point.value;
  return Stuck{late, early < kStuckUpdate, total};
}

}  // namespace firstfault::reason
