// One batch whose inputs are unlike all before it, and the loss or the gradients with it.
#include "firstfault/reason/mechanisms/reading.h"
#include "firstfault/reason/rules/batch.h"
#include "firstfault/reason/rules/outlier_rule.h"
#include "firstfault/reason/rules/rule.h"

namespace firstfault::reason {
namespace {

std::optional<Hypothesis> judge(const Reading& reading) {
  return outlier_hypothesis(reading, SiteRole::input, "data_outlier");
}

std::string condition() { return outlier_condition("an input"); }

}  // namespace

namespace list {
extern const Rule data_outlier;
const Rule data_outlier{.name = "data_outlier",
                        .symptom = "a spike of loss and gradients, or Inf, in one step; the next batch is ordinary",
                        .condition = condition,
                        .evidence =
                            "The batch's largest magnitude and rms against the batches before it; loss and "
                            "gradient norm of the same step.",
                        .advice =
                            "Check this batch; drop, clip or mask such values in the loader; clip the gradient "
                            "norm.",
                        .source =
                            "OLMo-core skips steps 6 standard deviations above the last 128; Megatron-LM counts "
                            "spikes above 10 times",
                        .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
