// A value that came out of a region which torch.compile had fused: no op in it was dispatched.
#include "firstfault/base/numbers.h"
#include "firstfault/reason/mechanisms/mechanism.h"
#include "firstfault/reason/mechanisms/reading.h"

namespace firstfault::reason {
namespace {

std::optional<Verdict> judge(const OriginEvidence& evidence) {
  if (evidence.role != TensorRole::compiled) return std::nullopt;
  std::string because = "the " + std::string(name_of(evidence.first)) + " came out of a compiled region";
  if (!evidence.role_name.empty()) because += ", " + evidence.role_name;
  because += ", whose ops are fused and invisible to a trace";
  if (!evidence.index.empty()) because += "; first at " + show_index(evidence.index);
  return Verdict{
      "", because,
      "run the step op by op, with torch.compiler.set_stance('force_eager'): the op and its line show then."};
}

}  // namespace

namespace list {
extern const Mechanism compiled_region;
const Mechanism compiled_region{
    .name = "compiled_region",
    .condition = "the value came out of a region that torch.compile had fused",
    .cause = "",
    .reading =
        "torch.compile fuses ops into kernels that are not dispatched, so no callback sees them. What such a region"
        " gives is looked at when the next op reads it; the module and line are those of the region.",
    .remedy = "Run the step op by op: torch.compiler.set_stance('force_eager').",
    .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
