#include "firstfault/reason/changes.h"

#include <algorithm>
#include <utility>

#include "firstfault/events/experiment.h"
#include "firstfault/reason/engine.h"
#include "firstfault/reason/standing/experiments_of_causes.h"

namespace firstfault::reason {

using namespace experiment;

std::vector<std::string_view> changes_for(const std::vector<Hypothesis>& hypotheses) {
  std::vector<std::string_view> all;
  for (const Hypothesis& one : hypotheses) {
    const CauseTests* tests = tests_of(one.cause);
    if (tests == nullptr) continue;
    for (const std::string_view name : tests->own) {
      if (std::find(all.begin(), all.end(), name) == all.end()) all.push_back(name);
    }
    // Whether it is bound to that batch says where, whatever else cures.
    const bool of_a_batch = std::find(tests->own.begin(), tests->own.end(), kBatchClipped) != tests->own.end();
    if (of_a_batch) all.push_back(kOtherBatch);
  }
  return all;
}

std::vector<std::string> causes_of(const Run& run) {
  std::vector<std::string> causes;
  for (Hypothesis& one : hypotheses(run)) causes.push_back(std::move(one.cause));
  return causes;
}

}  // namespace firstfault::reason
