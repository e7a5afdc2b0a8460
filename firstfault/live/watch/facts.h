// Facts about the program that show in single ops: what a loss is given, shapes that broadcast, clipping.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "firstfault/events/fact.h"
#include "firstfault/events/step_row.h"
#include "firstfault/live/intercept/frame.h"
#include "firstfault/live/measure/statistics.h"

namespace firstfault::watch {

/// Collects the facts of a step; a kind, module, op and detail are one fact however often they are seen. Not
/// thread-safe.
class FactFinder {
 public:
  /// One op of the forward that a gradient goes through, or a loss. `module` "": outside of every module.
  void look(const intercept::Frame& frame, const at::Tensor& output, const std::string& module);
  /// A half-precision result of the backward.
  void look_backward(const at::Tensor& output);
  /// Gradients were multiplied between backward and step. `scale`: of a scaler that has not been undone, NaN if none.
  struct Clip {
    double norm = StepRow::kUnknown;  ///< NaN: not known
    double coefficient = 1;
    double scale = StepRow::kUnknown;
  };
  void clipped(const Clip& clip);
  void add(Fact fact);

  /// Facts seen since the last call, stamped with the step.
  std::vector<Fact> take(std::int64_t step, double loss_scale);

 private:
  void look_at_loss(const intercept::Frame& frame, const std::string& module);
  void look_at_log_probabilities(const intercept::Frame& frame, Fact& loss);
  void look_at_softmax(const intercept::Frame& frame, const at::Tensor& output, const std::string& module);
  void look_at_router(const intercept::Frame& frame, const std::string& module);

  std::map<std::tuple<FactKind, std::string, std::string, std::string>, Fact> fresh_;
  std::map<std::string, std::map<std::string, double>> first_attention_;  ///< by module
  std::int64_t half_zeros_ = 0, half_elements_ = 0;
  measure::Grid grid_;
};

/// The operand that a loss compares or a softmax reads: the first tensor argument.
const intercept::Input* first_operand(const intercept::Frame& frame);
/// A whole-number argument of the op by its name in the schema.
std::int64_t integer_argument(const intercept::Frame& frame, std::string_view name, std::int64_t otherwise);

}  // namespace firstfault::watch
