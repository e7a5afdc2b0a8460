#include "firstfault/guard/result_bound.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "firstfault/guard/limits.h"

namespace firstfault::guard {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// A float32 ends at 3.4e38: what is below has room for the rounding of every op on the way.
constexpr double kMost = 1e18;
constexpr double kMostSquare = kMost * kMost;
constexpr double kRounding = 1.0001;  // of the few ops of one step

bool is_share(double number) noexcept { return number >= 0 && number < 1; }

struct Step {
  HeldSizes sizes;
  double largest = 0;  // of intermediate values

  double note(double value) noexcept {
    largest = std::isnan(value) ? kInfinity : std::max(largest, value);
    return value;
  }
};

Step sgd(const UpdateNumbers& group, const HeldSizes& before, double gradient) noexcept {
  Step step{before};
  if (group.momentum != 0) {
    // Not below what it was: a parameter without a gradient keeps its momentum, and so does a step that is left out.
    const double added = std::max(1.0, std::abs(1 - group.dampening)) * gradient;
    step.sizes.moment = std::max(before.moment, std::abs(group.momentum) * before.moment + added);
  }
  const double update = gradient + std::max(1.0, std::abs(group.momentum)) * step.sizes.moment;  // Nesterov's
  step.sizes.parameter += std::abs(group.lr) * step.note(update);
  return step;
}

Step adam(const UpdateNumbers& group, const HeldSizes& before, double gradient) noexcept {
  Step step{before};
  if (!is_share(group.beta1) || !is_share(group.beta2) || !(group.eps > 0)) return {HeldSizes::unknown()};
  step.sizes.moment = std::max(before.moment, gradient);
  step.sizes.square = std::max(before.square, gradient * gradient);
  step.note(step.sizes.square / (1 - group.beta2) / kMost);  // the sum of its root and eps
  const double update = step.note(step.sizes.moment / group.eps) * step.note(std::abs(group.lr) / (1 - group.beta1));
  if (group.decoupled) step.sizes.parameter *= std::max(1.0, std::abs(1 - group.lr * group.weight_decay));
  step.sizes.parameter += update;
  return step;
}

Step rmsprop(const UpdateNumbers& group, const HeldSizes& before, double gradient) noexcept {
  Step step{before};
  if (!is_share(group.alpha) || !(group.eps > 0)) return {HeldSizes::unknown()};
  step.sizes.square = std::max(before.square, gradient * gradient);
  double update = step.note(gradient / group.eps);
  if (group.momentum != 0) {
    update = step.sizes.moment = std::max(before.moment, std::abs(group.momentum) * before.moment + update);
  }
  step.sizes.parameter += std::abs(group.lr) * step.note(update);
  return step;
}

Step adagrad(const UpdateNumbers& group, const HeldSizes& before, double gradient) noexcept {
  Step step{before};
  if (!(group.eps > 0)) return {HeldSizes::unknown()};
  step.sizes.square = before.square + gradient * gradient;
  step.sizes.parameter += std::abs(group.lr) * step.note(gradient / group.eps);  // lr decays from there
  return step;
}

Step step_of(const UpdateNumbers& group, const HeldSizes& before, double gradient) noexcept {
  switch (group.rule) {
    case UpdateRule::sgd: return sgd(group, before, gradient);
    case UpdateRule::adam: return adam(group, before, gradient);
    case UpdateRule::rmsprop: return rmsprop(group, before, gradient);
    case UpdateRule::adagrad: return adagrad(group, before, gradient);
    case UpdateRule::unknown: break;
  }
  return {HeldSizes::unknown()};
}

}  // namespace

UpdateRule update_rule(std::string_view optimizer) noexcept {
  constexpr std::pair<std::string_view, UpdateRule> kRules[] = {{"SGD", UpdateRule::sgd},
                                                                {"Adam", UpdateRule::adam},
                                                                {"AdamW", UpdateRule::adam},
                                                                {"RMSprop", UpdateRule::rmsprop},
                                                                {"Adagrad", UpdateRule::adagrad}};
  for (const auto& [name, rule] : kRules) {
    if (name == optimizer) return rule;
  }
  return UpdateRule::unknown;
}

Held held_as(std::string_view state_name) noexcept {
  for (const std::string_view name : {"exp_avg", "momentum_buffer"}) {
    if (state_name == name) return Held::moment;
  }
  for (const std::string_view name : {"exp_avg_sq", "max_exp_avg_sq", "square_avg", "sum"}) {
    if (state_name == name) return Held::square;
  }
  return Held::other;
}

HeldSizes HeldSizes::unknown() noexcept { return {kInfinity, kInfinity, kInfinity}; }

void HeldSizes::add(Held what, double largest, bool may_be_negative) noexcept {
  switch (what) {
    case Held::parameter: parameter = std::max(parameter, largest); break;
    case Held::moment: moment = std::max(moment, largest); break;
    // The root of a negative one is NaN.
    case Held::square: square = std::max(square, may_be_negative ? kInfinity : largest); break;
    case Held::other: *this = unknown(); break;
  }
}

HeldSizes after_step(const UpdateNumbers& group, const HeldSizes& before, double gradient) noexcept {
  if (!group.decoupled) gradient += std::abs(group.weight_decay) * before.parameter;
  Step step = step_of(group, before, gradient);
  for (const double number : {group.lr, group.weight_decay, group.lr * gradient}) step.note(std::abs(number));
  const auto& [parameter, moment, square] = step.sizes;
  const bool small = gradient < kMost && parameter < kMost && moment < kMost && square < kMostSquare;
  if (!small || !(step.largest < kMost)) return HeldSizes::unknown();
  return {parameter * kRounding, moment * kRounding, square * kRounding};
}

bool ResultBound::step(const std::vector<UpdateNumbers>& groups, double gradient) noexcept {
  HeldSizes most;
  for (const UpdateNumbers& group : groups) {
    const HeldSizes after = after_step(group, now_, gradient);
    most = {std::max(most.parameter, after.parameter), std::max(most.moment, after.moment),
            std::max(most.square, after.square)};
  }
  const bool known = !groups.empty() && std::isfinite(most.parameter);
  now_ = known ? most : HeldSizes::unknown();
  return known;
}

bool reads_anyway(std::int64_t made, std::int64_t step, std::int64_t snapshot_every) noexcept {
  return made % kReadAnyway == 0 || (step + 1) % snapshot_every == 0;
}

}  // namespace firstfault::guard
