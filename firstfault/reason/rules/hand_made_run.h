// Runs written by hand, for the tests of rules.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "firstfault/reason/engine.h"
#include "firstfault/reason/rules/rule.h"

namespace firstfault::reason::hand_made {

inline const Rule& rule(std::string_view name) {
  for (const Rule& one : rules())
    if (one.name == name) return one;
  throw std::runtime_error("no rule of that name");
}

/// What that rule alone says.
inline std::optional<Hypothesis> ask(std::string_view name, const Run& run) {
  const Reading reading(run);
  return rule(name).judge(reading);
}

inline Health healthy(double rms) {
  Health health;
  health.nonfinite = 0;
  health.rms = static_cast<float>(rms);
  health.absmax = static_cast<float>(3 * rms);
  health.zeros = 0;
  return health;
}

/// Deterministic noise around 1: factors between 0.9 and 1.1.
inline double wobble(std::int64_t step) { return 1 + 0.1 * std::sin(2.3 * static_cast<double>(step)); }

/// A run of steps that learn: the loss falls from 1 to 0.1, gradients and updates are ordinary. Rows and sites can then
/// be changed by hand.
inline Run learning(std::int64_t steps) {
  Run run;
  run.steps = steps;
  run.sites.push_back({SiteRole::loss, "", "loss", "aten::mse_loss", "float32", {}, -1});
  for (std::int64_t step = 0; step < steps; ++step) {
    StepRow row;
    row.step = step;
    row.loss = wobble(step) * (0.1 + 0.9 * std::exp(-5.0 * static_cast<double>(step) / static_cast<double>(steps)));
    row.loss_state = StepRow::Loss::finite;
    row.gradient_norm = 0.5 * wobble(step + 7);
    row.update_ratio = 1e-3 * wobble(step + 3);
    row.parameter_norm = 10;
    row.lr = 0.01;
    row.backwards = 1;
    row.sites.push_back(healthy(row.loss));
    run.rows.push_back(row);
  }
  return run;
}

/// The same, but the loss stays where it is.
inline Run flat(std::int64_t steps) {
  Run run = learning(steps);
  for (StepRow& row : run.rows) row.loss = wobble(row.step);
  return run;
}

/// The last steps multiply loss and gradient by `factor` each and move the parameters, until the loss is Inf.
inline Run diverging(std::int64_t calm, std::int64_t growing, double factor) {
  Run run = learning(calm + growing + 1);
  double times = 1;
  for (StepRow& row : run.rows) {
    if (row.step < calm) continue;
    times *= factor;
    row.loss *= times;
    row.update_ratio = std::min(0.02 * times, 1e3);
    row.parameter_norm *= std::max(1.0, std::sqrt(times));
    row.gradient_norm = row.update_ratio * row.parameter_norm / row.lr;  // as SGD moves
  }
  StepRow& last = run.rows.back();
  last.loss = INFINITY;
  last.loss_state = StepRow::Loss::inf;
  return run;
}

/// Adds a site, and its health in every row.
inline std::int32_t add_site(Run& run, Site site, const std::function<Health(std::int64_t)>& health) {
  run.sites.push_back(std::move(site));
  for (StepRow& row : run.rows) {
    row.sites.resize(run.sites.size());
    row.sites.back() = health(row.step);
  }
  return static_cast<std::int32_t>(run.sites.size() - 1);
}

inline Site weight(std::string module, std::vector<std::int64_t> shape, std::int32_t order, SiteRole role) {
  return {role, module, module + ".weight", "", "float32", std::move(shape), order};
}

inline Site activation(std::string module, std::string op, std::int32_t order) {
  return {SiteRole::activation, module, module, std::move(op), "float32", {32, 16}, order};
}

inline Site batch(SiteRole role, std::string name) { return {role, "", std::move(name), "", "float32", {32, 8}, -1}; }

/// A fault of that mechanism and cause in that step, and the NaN loss it gives.
inline Origin& add_fault(Run& run, std::int64_t step, std::string mechanism, std::string cause) {
  Origin origin;
  origin.step = step;
  origin.phase = Phase::forward;
  origin.op = "aten::log";
  origin.module = "model.head";
  origin.stack = {{"train.py", 27, "forward"}};
  origin.evidence.dtype = "float32";
  origin.evidence.first = kNaN;
  origin.outcome = Outcome::fault;
  origin.sink = "loss";
  origin.mechanism = std::move(mechanism);
  origin.cause = std::move(cause);
  origin.because = "its operand 'self' holds what it should not";
  origin.advice = "do otherwise";
  for (StepRow& row : run.rows) {
    if (row.step < step) continue;
    row.loss = NAN;
    row.loss_state = StepRow::Loss::nan;
  }
  run.origins.push_back(origin);
  return run.origins.back();
}

/// Clips of all parameters, or those that one is behind, turn so.
inline Run with_clips(Run run, Condition to, std::int64_t step, double share, const std::string& parameter = "") {
  run.sites.push_back({SiteRole::clipping, "", parameter, "", "", {}, -1});
  run.transitions.push_back(
      {step, static_cast<std::int32_t>(run.sites.size() - 1), Condition::healthy, to, share, 0.04, 1});
  return run;
}

inline Fact& add_fact(Run& run, FactKind kind, std::int64_t count, std::map<std::string, double> numbers = {}) {
  Fact fact;
  fact.kind = kind;
  fact.count = count;
  fact.last_step = count - 1;
  fact.numbers = std::move(numbers);
  run.facts.push_back(fact);
  return run.facts.back();
}

}  // namespace firstfault::reason::hand_made
