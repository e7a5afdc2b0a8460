// The tracer at the end of an op: which outputs have to be looked at, and which are known to be finite without it.
#include <algorithm>
#include <cmath>
#include <limits>

#include "firstfault/live/measure/scan.h"
#include "firstfault/live/trace/tracer_detail.h"

namespace firstfault::trace {
namespace {

using intercept::FailPoint;
using intercept::Frame;
using intercept::Input;
using intercept::OpTraits;

// As the type of the output holds them.
double largest_trusted(const at::Tensor& output) {
  if (output.is_complex() || output.itemsize() < 2) return -1;
  return output.itemsize() == 2 ? 6e4 : 3e38;
}

// fill_(tensor) and full(nan) do not.
bool gives_finite_numbers(const Frame& frame, const at::Tensor& output) {
  const auto reads_tensor = [&](const Input& input) { return frame.traits->arguments[input.argument] == "value"; };
  const auto fits = [&](const auto& scalar) { return std::abs(scalar.value) <= largest_trusted(output); };
  return std::none_of(frame.inputs.begin(), frame.inputs.end(), reads_tensor) &&
         std::all_of(frame.scalars.begin(), frame.scalars.end(), fits);
}

bool writes_into(const Frame& frame, const at::Tensor& tensor) {
  return frame.traits->mutates && std::any_of(frame.inputs.begin(), frame.inputs.end(), [&](const Input& input) {
           return input.written && input.tensor.storage().is_alias_of(tensor.storage());
         });
}

Bounds bounds_of_number(const Input& input) {
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  const double value =
      input.floating ? measure::value_at(input.tensor, 0) : measure::integer_at(input.tensor, 0).value_or(kUnknown);
  if (!std::isfinite(value) || input.tensor.is_complex()) return {};
  const auto rounded = static_cast<float>(value);
  return {std::nextafter(std::abs(rounded), std::numeric_limits<float>::infinity()), rounded};
}

}  // namespace

Bounds as_bounds(const measure::Looked& looked) {
  if (looked.bits || !std::isfinite(looked.largest)) return {};
  const auto most = static_cast<float>(looked.largest);
  return {most, looked.signs ? -most : 0.0F};
}

// What is surely scanned, without the lock: other threads go on meanwhile. Gives the bits of all.
std::uint8_t Tracer::scan_outputs(const Frame& frame, Outputs& outputs) {
  find_bounds(frame, outputs);
  const auto bounded = [](const Output& output) { return output.bounds.known(); };
  const bool all_bounded = !outputs.empty() && std::all_of(outputs.begin(), outputs.end(), bounded);
  const bool known_finite =
      !all_bounded &&
      (frame.traits->constant ? !outputs.empty() && gives_finite_numbers(frame, outputs.front().tensor())
                              : surely_finite(frame, outputs));
  std::uint8_t bad = 0;
  for (Output& output : outputs) {
    const auto* storage = output.tensor().storage().unsafeGetStorageImpl();
    const bool later = frame.traits->delegates || (!output.written && reads_storage(frame, storage));
    if (later && !known_finite) continue;
    intercept::fail_here_if(FailPoint::measure);
    if (!known_finite && !output.bounds.known()) {
      const measure::Looked looked = measure::look(output.tensor());
      output.bits = looked.bits;
      output.bounds = as_bounds(looked);
    }
    output.scanned = true;
    bad |= output.bits;
  }
  return bad;
}

// What is small is always looked at: its true size costs nothing, and the loss is among it. Of the rest some are too,
// in case something wrote where nobody saw it.
void Tracer::find_bounds(const Frame& frame, Outputs& outputs) {
  constexpr std::int64_t kSmall = 1024;
  constexpr std::uint64_t kLookAtOneOf = 61;
  const OpTraits& op = *frame.traits;
  if (op.bound == intercept::BoundRule::none || op.delegates || frame.transparent || outputs.empty()) return;
  const auto large = [](const Output& output) { return output.tensor().numel() > kSmall; };
  if (frame.number % kLookAtOneOf == 0 || std::none_of(outputs.begin(), outputs.end(), large)) return;
  if (writes_are_unseen()) return;
  c10::SmallVector<const at::Tensor*, 3> results;
  for (const Output& output : outputs) {
    const at::Tensor& tensor = output.tensor();
    if (output.values.defined() || tensor.scalar_type() != at::kFloat || tensor.is_neg()) return;
    results.push_back(&tensor);
  }
  c10::SmallVector<Bounds, 6> operands;
  for (const Input& input : frame.inputs) {
    const bool gone = !input.written && writes_into(frame, input.tensor);
    operands.push_back(gone ? Bounds() : bounds_of_input(input, *results.front()));
  }
  const ResultBounds bounds = bounds_of(frame, operands, results);
  for (Output& output : outputs) {
    const auto result = static_cast<std::size_t>(output.result);
    if (large(output) && result < bounds.size()) output.bounds = bounds[result];
  }
}

// Of what an op of this step wrote, or before the optimizer writes it, one of an earlier step.
Bounds Tracer::bounds_of_input(const Input& input, const at::Tensor& result) {
  const at::Tensor& tensor = input.tensor;
  if (input.sparse.defined() || !tensor.is_cpu() || tensor.is_neg()) return {};
  if (tensor.numel() == 1) return bounds_of_number(input);
  if (!input.floating || tensor.scalar_type() != at::kFloat) return {};
  {
    const std::lock_guard lock(intercept::observer_mutex());
    if (const Slot* slot = slots_.find(tensor)) {
      if (slot->state != 0) return {};
      const KnownBounds& known = slots_.bounds(*slot);
      const bool fresh = known.at >= step_start_.load(std::memory_order_relaxed) ||
                         (input.written && optimizer_open_.load(std::memory_order_relaxed));
      const bool valid = known.at > 0 && known.at >= slot->written && slot->is_of(tensor);
      if (fresh && valid && owns_memory(tensor)) return known.bounds;
    }
  }
  const bool worth_it = !input.written && tensor.numel() <= 2 * result.numel();
  return worth_it && is_parameter_view(tensor) ? look_at_parameter(tensor) : Bounds();
}

// Once in a step: numpy may have written it since the step before.
Bounds Tracer::look_at_parameter(const at::Tensor& tensor) {
  if (!covers_storage(tensor) || !tensor.is_non_overlapping_and_dense()) return {};
  const Bounds bounds = as_bounds(measure::look(tensor));
  if (!bounds.known()) return {};
  const std::lock_guard lock(intercept::observer_mutex());
  const auto now = records_.load(std::memory_order_relaxed);
  const Slot& slot = slots_.insert(tensor, now);
  if (slot.state == 0) slots_.bounds(slot) = {now, bounds};
  return bounds;
}

// Only of operands that an op of this step wrote: what is older may have been changed since by numpy.
bool Tracer::surely_finite(const Frame& frame, const Outputs& outputs) {
  const OpTraits& op = *frame.traits;
  if ((!op.keeps_finite && !op.scales) || outputs.empty()) return false;
  const at::Tensor& output = outputs.front().tensor();
  const std::lock_guard lock(intercept::observer_mutex());
  bool scaled = !op.scales;
  const auto start = step_start_.load(std::memory_order_relaxed);
  if (writes_are_unseen()) return false;
  for (const Input& input : frame.inputs) {
    if (!input.tensor.is_cpu()) return false;
    if (!input.floating && !input.written && output.itemsize() <= 2) return false;  // a cast of integers may overflow
    if (input.written) {
      if (op.overwrites(input.argument)) continue;
      if (!input.looked_at || input.before) return false;
    } else if (input.floating) {
      if (op.scales && input.tensor.dim() == 0 && std::abs(measure::value_at(input.tensor, 0)) <= 1) {
        scaled = true;
        continue;
      }
      const Slot* slot = slots_.find(input.tensor);
      const bool known = slot && slot->state == 0 && slot->written > 0 && slot->written >= start;
      if (!known || !slot->is_of(input.tensor) || !owns_memory(input.tensor)) return false;
    }
    const bool narrows = input.floating && input.tensor.scalar_type() != output.scalar_type() &&
                         input.tensor.itemsize() >= output.itemsize();
    if (narrows || (input.floating && input.tensor.is_complex())) return false;
  }
  const auto finite = [](const auto& scalar) { return std::isfinite(scalar.value); };
  return scaled && std::all_of(frame.scalars.begin(), frame.scalars.end(), finite);
}

}  // namespace firstfault::trace
