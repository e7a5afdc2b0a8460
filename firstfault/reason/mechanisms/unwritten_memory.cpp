// Memory that `empty` handed out, read before anything wrote it.
#include "firstfault/base/numbers.h"
#include "firstfault/reason/mechanisms/mechanism.h"
#include "firstfault/reason/mechanisms/reading.h"

namespace firstfault::reason {
namespace {

std::optional<Verdict> judge(const OriginEvidence& evidence) {
  if (evidence.role != TensorRole::unwritten) return std::nullopt;
  std::string because = evidence.op.empty() ? "a tensor" : evidence.op + " read a tensor";
  if (!evidence.role_name.empty()) because += " ('" + evidence.role_name + "')";
  because += " that no recorded op had written: uninitialised, or filled by numpy or C++; it holds " +
             std::string(name_of(evidence.first));
  if (!evidence.index.empty()) because += " at " + show_index(evidence.index);
  return Verdict{"bad_init", because,
                 "initialise the memory before its first read: zeros, or torch.nn.init, in place of empty."};
}

}  // namespace

namespace list {
extern const Mechanism unwritten_memory;
const Mechanism unwritten_memory{
    .name = "unwritten_memory",
    .condition = "the first read of memory from `empty` that no op has written",
    .cause = "bad_init",
    .reading =
        "Memory from `torch.empty` was read before any recorded op had written it. numpy and C++ write without "
        "being seen, so the sentence says so too.",
    .remedy = "Initialise the memory before its first read.",
    .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
