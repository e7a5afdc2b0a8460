// A softmax row of which nothing is left.
#include "firstfault/reason/rules/observed.h"
#include "firstfault/reason/rules/rule.h"

namespace firstfault::reason {
namespace {

std::optional<Hypothesis> judge(const Reading& reading) { return observed(reading, "masked_softmax"); }

std::string condition() { return "softmax, log_softmax or attention over a row that is -Inf throughout"; }

}  // namespace

namespace list {
extern const Rule masked_softmax;
const Rule masked_softmax{.name = "masked_softmax",
                          .symptom = "NaN in attention for batches with padding",
                          .condition = condition,
                          .evidence =
                              "The row of the softmax's operand that holds the first NaN (mechanism "
                              "fully_masked_row).",
                          .advice = "Let each row see at least one key, or set such rows' output to 0.",
                          .source = "softmax of a row of -Inf is 0/0",
                          .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
