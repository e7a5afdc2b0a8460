#include "firstfault/guard/hyperparameter.h"

#include <cmath>

namespace firstfault::guard {
namespace {

constexpr double kSmall = 1e-3;  // for a rate, and for an eps that float16 holds

}  // namespace

bool vanishes(const Hyperparameter& one) { return one.is_eps && one.value != 0 && one.as_held == 0; }

std::optional<double> sound_value(const Hyperparameter& one, std::optional<double> usual) {
  if (!std::isfinite(one.value)) return usual && std::isfinite(*usual) ? *usual : kSmall;
  if (one.is_eps && one.as_held == 0) return kSmall;
  return {};
}

}  // namespace firstfault::guard
