#include "firstfault/reason/changes.h"

#include <gtest/gtest.h>

#include "firstfault/events/experiment.h"

namespace firstfault::reason {
namespace {

using namespace experiment;

Hypothesis suspected(const char* cause) {
  Hypothesis one;
  one.cause = cause;
  return one;
}

TEST(Changes, AreNamedOnceAndThoseOfABatchAskForAnotherBatch) {
  const auto names = changes_for({suspected("dead_units"), suspected("exploding_gradient"), suspected("unknown")});
  EXPECT_EQ(names, (std::vector<std::string_view>{kLeaky, kLowerRate}));
  const auto of_batch = changes_for({suspected("data_outlier")});
  EXPECT_EQ(of_batch, (std::vector<std::string_view>{kBatchClipped, kOtherBatch}));
}

}  // namespace
}  // namespace firstfault::reason
