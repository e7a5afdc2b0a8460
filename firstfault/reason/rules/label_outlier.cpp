// One batch whose targets are unlike all before it.
#include "firstfault/reason/rules/outlier_rule.h"
#include "firstfault/reason/rules/rule.h"

namespace firstfault::reason {
namespace {

std::optional<Hypothesis> judge(const Reading& reading) {
  return outlier_hypothesis(reading, SiteRole::target, "label_outlier");
}

std::string condition() { return outlier_condition("a target"); }

}  // namespace

namespace list {
extern const Rule label_outlier;
const Rule label_outlier{.name = "label_outlier",
                         .symptom = "a spike of loss and gradients in one step; the inputs are ordinary",
                         .condition = condition,
                         .evidence =
                             "The targets' largest magnitude and rms against the batches before; loss and "
                             "gradient norm of the same step.",
                         .advice =
                             "Check this batch's labels; a loss that bounds a single error (Huber) or clipping "
                             "limits the harm.",
                         .source = "as data_outlier",
                         .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
