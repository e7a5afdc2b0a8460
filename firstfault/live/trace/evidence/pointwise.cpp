// Pointwise ops: each output element comes from one element of each operand, by broadcasting.
#include "firstfault/live/trace/evidence/collect.h"

namespace firstfault::trace::evidence {

std::optional<std::vector<std::int64_t>> broadcast_index(c10::IntArrayRef operand,
                                                         const std::vector<std::int64_t>& output_shape,
                                                         const std::vector<std::int64_t>& index) {
  if (operand.size() > output_shape.size() || index.size() != output_shape.size()) return std::nullopt;
  const std::size_t lead = output_shape.size() - operand.size();
  std::vector<std::int64_t> at(operand.size());
  for (std::size_t d = 0; d < operand.size(); ++d) {
    if (operand[d] != 1 && operand[d] != output_shape[lead + d]) return std::nullopt;
    at[d] = operand[d] == 1 ? 0 : index[lead + d];
  }
  return at;
}

}  // namespace firstfault::trace::evidence
