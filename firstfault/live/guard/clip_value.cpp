// Clipping by value: gradients are written only where an element of theirs is beyond the limit.
#include <algorithm>
#include <cmath>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>

#include "firstfault/base/error.h"
#include "firstfault/live/guard/clip.h"
#include "firstfault/live/guard/devices.h"
#include "firstfault/live/guard/record.h"

namespace firstfault {
namespace guard {
namespace {

constexpr const char* kWhere = "clip_grad_value_";

// What is known of each gradient before any is changed.
struct Values {
  std::vector<double> norms, largest;
  // For those that only ATen can reach; of the others the clamp itself tells.
  std::vector<double> after, together;  // norms of the clamped one, and of its sum with the gradient
  std::vector<double> changed;
};

// Five numbers of each, so that one transfer is enough. Inner products come from the norm of a sum: no overflow.
void measure_elsewhere(const std::vector<Gradient>& gradients, double limit, Values& values) {
  std::vector<at::Tensor> numbers;
  std::vector<std::size_t> which;
  const auto norm = [](const at::Tensor& tensor, double p) {
    const auto wide = tensor.is_mps() ? at::kFloat : at::kDouble;
    return at::linalg_vector_norm(tensor, p, at::OptionalIntArrayRef(), false, wide);
  };
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].in_memory()) continue;
    const at::Tensor& tensor = gradients[i].values;
    const auto clamped = tensor.clamp(-limit, limit);
    const auto beyond = tensor.abs().gt(limit).sum();
    const auto row = at::stack({norm(tensor, 2), norm(tensor, kInfinity), norm(clamped, 2),
                                norm(tensor.add(clamped), 2), beyond.to(tensor.is_mps() ? at::kFloat : at::kDouble)});
    numbers.push_back(numbers.empty() ? row : row.to(numbers.front().device(), /*non_blocking=*/true));
    which.push_back(i);
  }
  if (numbers.empty()) return;
  const auto host = fetched(at::stack(numbers).flatten());
  for (std::size_t k = 0; k < which.size(); ++k) {
    const double* row = host.data() + 5 * k;
    std::vector<double>* const columns[] = {&values.norms, &values.largest, &values.after, &values.together,
                                            &values.changed};
    for (std::size_t c = 0; c < 5; ++c) (*columns[c])[which[k]] = row[c];
  }
}

Values measure_values(const std::vector<Gradient>& gradients, double limit) {
  const std::vector<double> none(gradients.size(), 0);
  Values values{norms_of(gradients, 2), norms_of(gradients, kInfinity), none, none, none};
  measure_elsewhere(gradients, limit, values);
  return values;
}

void clamp_in_memory(Gradient& gradient, double limit, double unit, Clamped& clamped) {
  if (!gradient.summed.defined()) make_writable(gradient);
  for_each_run(gradient.memory,
               [&](std::byte* data, std::size_t n) { clamp(gradient.number, data, n, limit, unit, clamped); });
  // What is bounded is the sum of what stands at one index.
  if (gradient.summed.defined()) gradient.tensor.copy_(gradient.summed);
}

void clamp_elsewhere(Gradient& gradient, double limit) {
  gradient.values.clamp_(-limit, limit);
  if (gradient.summed.defined()) gradient.tensor.copy_(gradient.summed);
}

double square(double x) { return x * x; }

// Sums over all of them, in parts of `unit` squared.
Clamped clamp_all(std::vector<Gradient>& gradients, const Values& values, double limit, double unit) {
  const at::NoGradGuard no_grad;
  Clamped sums;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const double squares = square(values.norms[i] / unit);
    if (values.largest[i] <= limit) {
      sums.before += squares, sums.after += squares, sums.across += squares;
    } else if (gradients[i].in_memory()) {
      clamp_in_memory(gradients[i], limit, unit, sums);
    } else {
      const double after = square(values.after[i] / unit);
      sums.before += squares, sums.after += after;
      sums.across += (square(values.together[i] / unit) - squares - after) / 2;
      sums.changed += static_cast<std::int64_t>(values.changed[i]);
      clamp_elsewhere(gradients[i], limit);
    }
  }
  return sums;
}

void refuse_complex(const std::vector<Gradient>& gradients) {
  for (const Gradient& gradient : gradients) {
    if (!gradient.values.is_complex()) continue;
    throw Error("firstfault: clip_grad_value_: parameter " + std::to_string(gradient.index) +
                " has a complex gradient, whose values have no order; clip by norm.");
  }
}

}  // namespace
}  // namespace guard

ClipRecord clip_grad_value_(at::TensorList parameters, double clip_value, const ClipOptions& options) {
  guard::check(clip_value, options, guard::kWhere);
  const auto given = guard::gradients_of(parameters);
  auto gradients = guard::collect(given, options.by_aten);
  guard::refuse_complex(gradients);
  auto values = guard::measure_values(gradients, clip_value);
  ClipRecord record;
  record.limit = clip_value;
  guard::fill(record, {gradients, values.norms, 2}, options);
  if (guard::settle_nonfinite(record, {gradients, values.norms, 2}, options.on_nonfinite, guard::kWhere)) {
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (values.norms[i] == 0) values.largest[i] = 0;
    }
    const double most = guard::norm_of_norms(values.largest, guard::kInfinity);
    const auto sums = guard::clamp_all(gradients, values, clip_value, most > 0 ? most : 1);
    record.parts = 0;
    for (const auto& gradient : gradients) record.parts += gradient.values.numel();
    record.clipped_parts = sums.changed;
    record.coefficient = sums.before > 0 ? std::sqrt(sums.after / sums.before) : 1;
    record.angle = guard::angle_of(sums);
  }
  guard::tell_listeners(record, given);
  return record;
}

}  // namespace firstfault
