// A CTC target that cannot be aligned with its input has probability 0, so its loss is +Inf (Graves et al. 2006:
// the input needs a frame per label and one more between two equal labels).
#include "firstfault/base/numbers.h"
#include "firstfault/reason/mechanisms/mechanism.h"
#include "firstfault/reason/mechanisms/reading.h"

namespace firstfault::reason {
namespace {

std::string lengths(const OriginEvidence& evidence) {
  const auto input = value_of(find(evidence, "input_lengths"));
  const auto target = value_of(find(evidence, "target_lengths"));
  if (input && target) return " (target length " + show_number(*target) + ", input length " + show_number(*input) + ")";
  const Operand* scores = find(evidence, "log_probs");
  if (scores == nullptr || scores->shape.empty()) return "";
  return " (the input has at most " + show_count(scores->shape.front()) + " frames)";
}

std::optional<Verdict> judge(const OriginEvidence& evidence) {
  if (!one_of(judged(evidence), {"_ctc_loss", "ctc_loss"}) || evidence.first != kPosInf) return std::nullopt;
  if (!known_finite(find(evidence, "log_probs"))) return std::nullopt;
  std::string because = "no alignment exists, so the loss is +Inf";
  if (evidence.index.size() == 1) because += " for sequence " + show_count(evidence.index.front());
  because += ": a target, with a blank between equal labels, is longer than its input" + lengths(evidence);
  return Verdict{"data_invalid", because,
                 "drop samples whose target is longer than their input, or set zero_infinity=True."};
}

}  // namespace

namespace list {
extern const Mechanism infeasible_ctc;
const Mechanism infeasible_ctc{.name = "infeasible_ctc",
                               .condition = "ctc_loss gives +Inf on finite scores: a target longer than its input",
                               .cause = "data_invalid",
                               .reading = "A target that cannot be aligned with its input has probability 0.",
                               .remedy = "Drop such samples, or set `zero_infinity=True`.",
                               .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
