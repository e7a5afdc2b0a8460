// Run: the read model. What the live half recorded, as a plain value; all that `reason` and `present` ever see.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "firstfault/events/origin.h"

namespace firstfault {

/// What could not be looked at, so that silence is never taken for health.
struct Uninspected {
  std::string what;  ///< "dtype float8_e4m3fn", "layout sparse_coo", "device cuda", …
  std::int64_t tensors = 0;
};

struct Run {
  std::int64_t steps = 0;       ///< ended by an optimizer, and the open one once the model has run
  std::int64_t ops = 0;         ///< ops recorded
  std::vector<Origin> origins;  ///< faults first, in the order they happened; then swallowed; then notes
  std::vector<Uninspected> uninspected;
  std::vector<std::string> warnings;  ///< caps reached, the tool switched itself off and why, …
};

/// The answer about one tensor.
struct Diagnosis {
  std::string target;  ///< "loss", "gradient of 'fc.weight'", "aten::sum output"
  std::vector<std::int64_t> shape;
  std::string dtype;
  Counts counts;                 ///< non-finite elements of the target; all 0: nothing is wrong with it
  std::int64_t ops = 0;          ///< ops recorded so far
  std::string note;              ///< why there is no answer: the tool is switched off, …; "" where there is one
  std::vector<Origin> culprits;  ///< independent origins, earliest first; each path ends at the target
};

}  // namespace firstfault
