// A watched run made by hand, for the tests of this stage.
#pragma once

#include "firstfault/record/run.h"

namespace firstfault::present::hand_made {

inline Hypothesis lr_too_high() {
  Hypothesis one;
  one.cause = "lr_too_high";
  one.confidence = 0.934;
  one.standing = Standing::inferred;
  one.step = 14;
  one.onset_step = 3;
  one.phase = "optimizer";
  one.op = "aten::addmm";
  one.module = "model.fc1";
  one.param = "fc1.weight";
  one.sample = 5;
  one.file = "train.py";
  one.line = 58;
  one.description = "each step moved the parameters by 1.6 times their size, and the loss grew 3.1 times per step";
  one.evidence = {{3, "fc1.weight", "update/weight ratio 1.6, above 0.1"}, {-1, "", "Adam, lr 0.5"}};
  one.advice = "lower the learning rate by 10 to 30 times";
  return one;
}

inline firstfault::Run watched_run() {
  firstfault::Run run;
  run.steps = 20;
  run.state = RunState::died;
  Site gradient;
  gradient.role = SiteRole::gradient;
  gradient.module = "model.fc1";
  gradient.name = "fc1.weight";
  gradient.shape = {8, 4};
  gradient.order = 0;
  run.sites = {gradient, Site{.name = "loss"}};
  StepRow row;
  row.loss = 2.5;
  row.loss_state = StepRow::Loss::finite;
  row.lr = 0.5;
  run.rows.push_back(row);
  row.step = 19;
  row.loss = 31000.25;
  row.sites = {Health{.nonfinite = 0, .rms = 0.5F}};
  run.rows.push_back(row);
  run.transitions = {{12, 0, Condition::healthy, Condition::exploding, 4200.25, 0.3125, 0.93}};
  return run;
}

}  // namespace firstfault::present::hand_made
