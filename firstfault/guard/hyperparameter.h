// A number of a parameter group that cannot be, and another one in its place.
#pragma once

#include <optional>
#include <string>

namespace firstfault::guard {

/// By what to call it: "lr", "betas[1] of group 2".
struct Hyperparameter {
  std::string name;
  double value = 0;
  double as_held = 0;  ///< in the dtype that it is added to; only asked for an eps
  bool is_eps = false;
};

/// An eps that the program wrote is 0 in the dtype that it is added to.
bool vanishes(const Hyperparameter& one);
/// Another value for one that is not finite (`usual`, where that is), or for an eps that is 0 as it is held; nullopt
/// for one that can be.
std::optional<double> sound_value(const Hyperparameter& one, std::optional<double> usual);

}  // namespace firstfault::guard
