#include "firstfault/record/storage/names.h"

namespace firstfault::record {

template <>
std::span<const std::string_view> stored_names<SiteRole>() {
  static constexpr std::string_view names[] = {"loss",     "input",     "target",    "activation",
                                               "gradient", "parameter", "optimizer", "clipping"};
  return names;
}

template <>
std::span<const std::string_view> stored_names<Condition>() {
  static constexpr std::string_view names[] = {"healthy", "non-finite", "exploding", "vanishing", "saturated", "dead",
                                               "spiking", "unstable",   "chronic",   "rising",    "dominant"};
  return names;
}

template <>
std::span<const std::string_view> stored_names<FactKind>() {
  static constexpr std::string_view names[] = {"loss_op",      "loss_broadcast", "raw_scores",   "low_precision",
                                               "underflow",    "not_held",       "foreign",      "constant_op",
                                               "clipped",      "clipped_scaled", "data_invalid", "attention",
                                               "expert_share", "compiled",       "experiment",   "growth_in_time"};
  return names;
}

template <>
std::span<const std::string_view> stored_names<StepRow::Loss>() {
  static constexpr std::string_view names[] = {"unknown", "finite", "nan", "inf"};
  return names;
}

template <>
std::span<const std::string_view> stored_names<Phase>() {
  static constexpr std::string_view names[] = {"data", "parameter", "outside", "forward", "backward", "optimizer"};
  return names;
}

template <>
std::span<const std::string_view> stored_names<Outcome>() {
  static constexpr std::string_view names[] = {"fault", "swallowed", "deselected", "unused", "intended"};
  return names;
}

template <>
std::span<const std::string_view> stored_names<OperandState>() {
  static constexpr std::string_view names[] = {"finite", "intended_inf", "bad", "unknown"};
  return names;
}

template <>
std::span<const std::string_view> stored_names<TensorRole>() {
  static constexpr std::string_view names[] = {"none",  "parameter", "buffer",    "gradient",
                                               "batch", "outside",   "unwritten", "compiled"};
  return names;
}

template <>
std::span<const std::string_view> stored_names<GuardAction::Kind>() {
  static constexpr std::string_view names[] = {"clip", "skip", "rollback", "stop", "warn"};
  return names;
}

template <>
std::span<const std::string_view> stored_names<RunState>() {
  static constexpr std::string_view names[] = {"recording", "died", "complete"};
  return names;
}

}  // namespace firstfault::record
