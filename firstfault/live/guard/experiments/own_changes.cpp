// Changes that only the program can make: they apply where it offers them.
#include <algorithm>

#include "firstfault/live/guard/experiments/trial.h"

namespace firstfault::guard {
namespace {

void make(Trial& trial, std::string_view name) {
  const auto& own = trial.given.own;
  const auto offered =
      std::find_if(own.begin(), own.end(), [&](const OwnChange& one) { return one.change.name == name; });
  if (offered != own.end()) trial.make(*offered);
}

}  // namespace

namespace list {
extern const Experimenter earlier_state, float32, float64, initialised, hyperparameter, zero_grad, averaged;
const Experimenter earlier_state{experiment::kEarlierState, [](Trial& t) { make(t, experiment::kEarlierState); }};
const Experimenter float32{experiment::kFloat32, [](Trial& t) { make(t, experiment::kFloat32); }};
const Experimenter float64{experiment::kFloat64, [](Trial& t) { make(t, experiment::kFloat64); }};
const Experimenter initialised{experiment::kInitialised, [](Trial& t) { make(t, experiment::kInitialised); }};
const Experimenter hyperparameter{experiment::kHyperparameter, [](Trial& t) { make(t, experiment::kHyperparameter); }};
const Experimenter zero_grad{experiment::kZeroGrad, [](Trial& t) { make(t, experiment::kZeroGrad); }};
const Experimenter averaged{experiment::kAveraged, [](Trial& t) { make(t, experiment::kAveraged); }};
}  // namespace list

}  // namespace firstfault::guard
