// Softmax over a row that is all -Inf: exp(-Inf - max) = exp(-Inf + Inf) = NaN.
#include "firstfault/base/numbers.h"
#include "firstfault/reason/mechanisms/mechanism.h"
#include "firstfault/reason/mechanisms/reading.h"

namespace firstfault::reason {
namespace {

bool takes_a_mask(std::string_view name) { return name == "_masked_softmax"; }

bool normalises_rows(std::string_view name) {
  return one_of(name, {"_softmax", "softmax", "_log_softmax", "log_softmax", "_masked_softmax", "_sparse_softmax"}) ||
         name.find("scaled_dot_product") != std::string_view::npos;
}

/// A row of a softmax is NaN only if it holds NaN or +Inf, or is all -Inf.
bool must_be_all_neg_inf(const OriginEvidence& evidence) {
  const Operand* scores = find(evidence, "self");
  if (scores == nullptr || scores->state != OperandState::intended_inf) return false;
  return scores->counts.neg_inf > 0 && scores->counts.pos_inf == 0 && scores->counts.nan == 0;
}

std::string row_text(const OriginEvidence& evidence) {
  const RowEvidence& row = *evidence.row;
  std::string text = "all " + show_count(row.length) + " entries of the row";
  if (!row.index.empty()) text += " " + show_index(row.index);
  return text + " along dim " + show_count(row.dim) + " are -Inf";
}

std::optional<Verdict> judge(const OriginEvidence& evidence) {
  const std::string_view name = judged(evidence);
  if (!normalises_rows(name) || evidence.first != kNaN) return std::nullopt;
  std::string what;
  if (evidence.row && evidence.row->length > 0) {
    if (evidence.row->neg_inf != evidence.row->length) return std::nullopt;
    what = row_text(evidence);
  } else if (must_be_all_neg_inf(evidence)) {
    what = "its operand 'self' holds no NaN and no +Inf, so the row of this NaN is all -Inf";
  } else if (takes_a_mask(name) && known_finite(find(evidence, "self"))) {
    what = "its operand 'self' is finite, so its mask leaves nothing in the row of this NaN";
  } else {
    return std::nullopt;
  }
  return Verdict{"masked_softmax", "a softmax over nothing is 0/0 = NaN: " + what + inside(evidence),
                 "let each row see at least one entry, or mask with a large finite negative number and set the output "
                 "of such rows to 0."};
}

}  // namespace

namespace list {
extern const Mechanism fully_masked_row;
const Mechanism fully_masked_row{
    .name = "fully_masked_row",
    .condition = "softmax, log_softmax or attention over a row that is all -Inf",
    .cause = "masked_softmax",
    .reading =
        "exp(x - max) with max = -Inf is NaN. Read off the row; where the row is not known it follows from an "
        "operand that holds -Inf but no NaN and no +Inf.",
    .remedy = "Let each row see one entry, or zero the output of such rows.",
    .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
