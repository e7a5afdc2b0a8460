// A run with something of everything, for tests.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "firstfault/record/run.h"

namespace firstfault::record {

inline Setup hand_made_setup() {
  Setup setup;
  setup.command = {"train.py", "--lr", "0.1", "caf\xC3\xA9 \x1b[31m"};
  setup.directory = "/home/user/project";
  setup.git_commit = "0123abcd";
  setup.host = "machine";
  setup.started = "2026-01-02T03:04:05Z";
  setup.versions = {{"firstfault", "0.1.0"}, {"torch", "2.13.0"}};
  setup.level = "ops";
  setup.modules = {{"model", "Sequential", 0}, {"model.0", "Linear", 4160}, {"model.1", "Tanh", 0}};
  setup.optimizers = {{"Adam",
                       {{{"lr", 0.1}, {"eps", 1e-8}, {"beta1", 0.9}},
                        {{"lr", std::numeric_limits<double>::infinity()}, {"odd", 1. / 3}}}},
                      {"SGD", {}}};
  return setup;
}

inline Site hand_made_site(int index) {
  constexpr SiteRole roles[] = {SiteRole::loss,      SiteRole::input,    SiteRole::activation,
                                SiteRole::parameter, SiteRole::gradient, SiteRole::optimizer};
  Site site;
  site.role = roles[index % 6];
  site.module = "model." + std::to_string(index / 6);
  site.name = "site " + std::to_string(index);
  site.op = site.role == SiteRole::activation ? "aten::tanh" : "";
  site.dtype = "float32";
  site.shape = {64, index};
  site.order = index / 6;
  return site;
}

/// Each number is another, so that mixed up columns show.
inline StepRow hand_made_row(std::int64_t step, int sites) {
  StepRow row;
  row.step = step;
  row.seconds = 0.25 * static_cast<double>(step);
  row.loss = 1.0 / static_cast<double>(step + 1);
  row.loss_state = StepRow::Loss::finite;
  row.gradient_norm = 2.0 + static_cast<double>(step);
  row.update_ratio = 0.001;
  row.parameter_norm = 17.5;
  row.lr = 0.1 / static_cast<double>(step + 1);
  row.loss_scale = step % 2 == 0 ? 65536.0 : StepRow::kUnknown;
  row.backwards = static_cast<std::int32_t>(step % 3);
  row.gradients_left_over = step % 5 == 1;
  row.skipped = step % 7 == 2;
  row.reset_state = step % 11 == 3;
  row.optimizer = static_cast<std::int32_t>(step % 2);
  if (step % 3 == 0) row.logged["accuracy"] = 0.5 + 0.001 * static_cast<double>(step % 100);
  for (int i = 0; i < sites; ++i) {
    Health health;
    health.nonfinite = i % 4 == 3 ? step % 2 : 0;
    const float base = static_cast<float>(step % 1000) + static_cast<float>(i) / 16;
    float* const values[] = {&health.rms,  &health.absmax, &health.mean,    &health.zeros,      &health.saturated,
                             &health.dead, &health.varies, &health.columns, &health.update,     &health.flips,
                             &health.lr,   &health.second, &health.eps,     &health.state_steps};
    float offset = 0;
    for (float* value : values) *value = base + 1000 * ++offset;
    if (i % 2 == 1) health.columns = Health::kAbsent;
    if (i % 8 == 5) health.absmax = std::numeric_limits<float>::infinity();
    row.sites.push_back(health);
  }
  return row;
}

inline Origin hand_made_origin(std::int64_t step, Outcome outcome) {
  Origin origin;
  origin.step = step;
  origin.op_number = 123456789012;
  origin.phase = Phase::backward;
  origin.op = "SqrtBackward0";
  origin.inner_op = "aten::div";
  origin.outer_op = "aten::sqrt";
  origin.forward_op = "aten::sqrt";
  origin.module = "model.0";
  origin.after_module = "model.1";
  origin.param = "model.0.weight";
  origin.device = "cpu";
  origin.sample = 7;
  origin.stack = {{"train.py", 12, "step"}, {"train.py", 40, "<module>"}};
  origin.outcome = outcome;
  origin.sink = "gradient of 'model.0.weight'";
  origin.path = {{3, "aten::div", "model.0", Phase::backward, "+Inf"},
                 {4, "aten::mul", "", Phase::optimizer, "NaN", "aten::mul_", {2, 3}, "float16"}};
  origin.merged = 4;
  origin.replayed = true;
  origin.mechanism = "derivative_at_boundary";
  origin.cause = "op_domain";
  origin.because = "1/0";
  origin.advice = "eps";
  OriginEvidence& evidence = origin.evidence;
  evidence.op = "SqrtBackward0";
  evidence.inner_op = "aten::div";
  evidence.forward_op = "aten::sqrt";
  evidence.in_backward = true;
  evidence.dtype = "float32";
  evidence.shape = {2, 0, 5};
  evidence.output = {1, 2, 3};
  evidence.first = kNegInf;
  evidence.index = {1, 0, 4};
  Operand operand;
  operand.name = "self";
  operand.dtype = "bfloat16";
  operand.shape = {2};
  operand.is_scalar_argument = true;
  operand.was_overwritten = true;
  operand.state = OperandState::intended_inf;
  operand.counts = {4, 5, 6};
  operand.value = -std::numeric_limits<double>::infinity();
  operand.index = {1};
  operand.min = 0.1;
  operand.max = std::numeric_limits<double>::quiet_NaN();
  operand.zeros = 9;
  operand.source = "buffer 'bn.running_var'";
  evidence.operands = {operand, Operand{}};
  evidence.row = RowEvidence{.dim = 1, .length = 2, .neg_inf = 3, .nan = 4, .index = {5}};
  evidence.role = TensorRole::buffer;
  evidence.role_name = "bn.running_var";
  return origin;
}

inline Fact hand_made_fact(std::int64_t step) {
  Fact fact;
  fact.kind = FactKind::clipped;
  fact.module = "model.0";
  fact.op = "aten::mul_";
  fact.detail = "all";
  fact.first_step = fact.last_step = step;
  fact.numbers = {{"norm", static_cast<double>(step)}, {"coefficient", 1. / 3}, {"scale", StepRow::kUnknown}};
  fact.file = "train.py";
  fact.line = 33;
  return fact;
}

inline std::vector<GuardAction> hand_made_actions() {
  GuardAction clip;
  clip.step = 4;
  clip.norm = 12.5, clip.limit = 1, clip.coefficient = 0.08, clip.angle = 0, clip.length = 1. / 3;
  clip.largest = {{"model.0.weight", 0.75}, {"model.0.bias", 0.25}};
  GuardAction back;
  back.step = 7;
  back.kind = GuardAction::Kind::rollback;
  back.fault = "result", back.reason = "the optimizer wrote NaN into 'model.0.weight'", back.undone = "snapshot";
  back.snapshot = 5, back.lost = 2;
  return {clip, back};
}

/// Fills a History or a RunFile alike.
template <class Recorder>
void record_hand_made(Recorder& recorder, std::int64_t steps = 20, int sites = 12) {
  recorder.set_setup(hand_made_setup());
  for (int i = 0; i < sites; ++i) recorder.add_site(hand_made_site(i));
  for (std::int64_t step = 0; step < steps; ++step) {
    recorder.add_row(hand_made_row(step, sites));
    if (step == 5) recorder.add_transition({5, 4, Condition::healthy, Condition::exploding, 1e6, 0.5, 0.75});
    if (step == 6) {
      recorder.add_transition({6, 2, Condition::healthy, Condition::saturated, 0.9, Health::kAbsent, 1});
    }
    if (step < 3) recorder.merge_fact(hand_made_fact(step));
  }
  recorder.add_origin(hand_made_origin(3, Outcome::swallowed));
  recorder.add_origin(hand_made_origin(4, Outcome::fault));
  for (GuardAction& action : hand_made_actions()) recorder.add_action(std::move(action));
  recorder.set_ops(4321);
  recorder.set_uninspected({{"dtype float8_e4m3fn", 3}});
  recorder.add_warning("something was switched off");
}

}  // namespace firstfault::record
