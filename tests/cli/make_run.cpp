// make_run KIND FILE: a run file as a training would have left it, for the tests of the program.
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <string>
#include <thread>

#include "firstfault/record/run_file.h"

namespace {

using namespace firstfault;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Setup setup(double lr, const std::string& name) {
  Setup out;
  out.command = {"python", "train.py", "--lr", std::to_string(lr)};
  out.directory = "/home/user/project";
  out.git_commit = "0123abcd";
  out.host = "machine";
  out.started = "2026-01-02T03:04:05Z";
  out.versions = {{"torch", "2.13.0"}};
  out.level = "ops";
  out.modules = {{"model", "Sequential", 0}, {name, "Linear", 4160}};
  out.optimizers = {{"Adam", {{{"lr", lr}, {"eps", 1e-8}}}}};
  return out;
}

Site site(SiteRole role, const std::string& module, const std::string& name) {
  Site out;
  out.role = role;
  out.module = module;
  out.name = name;
  out.dtype = "float32";
  out.shape = {64, 65};
  return out;
}

/// A loss that falls and settles, as a healthy run's does, with a little noise.
StepRow row(std::int64_t step) {
  const double noise = 1 + 0.02 * std::sin(static_cast<double>(step) * 12.9898);
  StepRow out;
  out.step = step;
  out.seconds = 0.01 * static_cast<double>(step);
  out.loss = (0.25 + 2 * std::exp(-0.05 * static_cast<double>(step))) * noise;
  out.loss_state = StepRow::Loss::finite;
  out.gradient_norm = 0.5 * noise;
  out.update_ratio = 0.001;
  out.parameter_norm = 17.5;
  out.lr = 0.001;
  out.backwards = 1;
  Health loss, gradient;
  loss.nonfinite = gradient.nonfinite = 0;
  loss.rms = static_cast<float>(out.loss);
  gradient.rms = static_cast<float>(out.gradient_norm / 64);
  gradient.absmax = 4 * gradient.rms;
  out.sites = {loss, gradient};
  return out;
}

void fill(record::RunFile& file, std::int64_t steps, double lr, const std::string& name) {
  file.set_setup(setup(lr, name));
  file.add_site(site(SiteRole::loss, "", "loss"));
  file.add_site(site(SiteRole::gradient, name, name + ".weight"));
  for (std::int64_t step = 0; step < steps; ++step) file.add_row(row(step));
}

/// log of 0 in step `step`: the loss is -Inf and the gradient NaN.
void add_log_of_zero(record::RunFile& file, std::int64_t step, const std::string& name) {
  StepRow bad = row(step);
  bad.loss = -std::numeric_limits<double>::infinity();
  bad.loss_state = StepRow::Loss::inf;
  bad.gradient_norm = std::numeric_limits<double>::infinity();
  bad.sites[0].nonfinite = 1;
  bad.sites[1].nonfinite = 12;
  file.add_row(bad);
  file.add_transition({step, 0, Condition::healthy, Condition::non_finite, kNaN, 0.3, 1});
  file.add_transition({step, 1, Condition::healthy, Condition::non_finite, kNaN, 0.01, 1});
  Origin origin;
  origin.step = step;
  origin.op_number = 4711;
  origin.op = origin.evidence.op = origin.evidence.inner_op = "aten::log";
  origin.module = name;
  origin.device = "cpu";
  origin.stack = {{"/home/user/project/train.py", 27, "forward"}};
  origin.evidence.dtype = "float32";
  origin.evidence.shape = {64, 10};
  origin.evidence.output.neg_inf = 1;
  origin.evidence.first = kNegInf;
  origin.evidence.index = {2, 7};
  Operand operand;
  operand.name = "self";
  operand.dtype = "float32";
  operand.shape = {64, 10};
  operand.state = OperandState::finite;
  operand.value = 0.0;
  operand.index = {2, 7};
  operand.min = 0.0;
  operand.max = 0.9;
  operand.zeros = 1;
  origin.evidence.operands = {operand};
  origin.outcome = Outcome::fault;
  origin.sink = "loss";
  file.add_origin(origin);
}

/// A step was skipped, the run went back once, and six were clipped.
void add_actions(record::RunFile& file, const std::string& name) {
  GuardAction skip;
  skip.step = 20;
  skip.kind = GuardAction::Kind::skip;
  skip.fault = "gradient";
  skip.reason = "gradient of '" + name + ".weight' holds NaN in 12 of 4160 elements";
  file.add_action(skip);
  GuardAction back = skip;
  back.step = 30;
  back.kind = GuardAction::Kind::rollback;
  back.snapshot = 25;
  back.lost = 5;
  file.add_action(back);
  for (std::int64_t step = 32; step < 38; ++step) {
    GuardAction clip;
    clip.step = step;
    clip.norm = 8;
    clip.limit = 1;
    clip.coefficient = 0.125;
    clip.largest = {{name + ".weight", 0.9}};
    file.add_action(clip);
  }
}

/// Steps come until this process is killed.
[[noreturn]] void record_for_ever(record::RunFile& file) {
  for (std::int64_t step = 10;; ++step) {
    file.add_row(row(step));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

int make(const std::string& kind, const std::string& path) {
  record::RunFile file(path);
  const std::string name = kind == "hostile" ? "model.\x1b[31m\xe2\x80\xae\xff,\"q\"\n<b>" : "model.0";
  if (kind == "empty") {
    file.set_setup(setup(0.001, name));
  } else if (kind == "healthy") {
    fill(file, 200, 0.001, name);
  } else if (kind == "other") {
    fill(file, 100, 0.002, "model.1");
    StepRow late = row(100);
    late.loss *= 1.0001;
    file.add_row(late);
    late = row(101);
    late.loss *= 2;
    file.add_row(late);
  } else if (kind == "fault" || kind == "hostile") {
    fill(file, 40, 0.001, name);
    if (kind == "hostile") add_actions(file, name);
    add_log_of_zero(file, 40, name);
  } else if (kind == "guarded") {
    fill(file, 40, 0.001, name);
    add_actions(file, name);
  } else if (kind == "recording") {
    fill(file, 10, 0.001, name);
    record_for_ever(file);
  } else if (kind == "killed") {
    fill(file, 40, 0.001, name);
    add_log_of_zero(file, 40, name);
    file.flush(std::chrono::seconds(10));
    _exit(1);
  } else {
    std::cerr << "no such kind of run: " << kind << "\n";
    return 2;
  }
  file.close(kind == "fault" ? RunState::died : RunState::complete);
  if (!file.problem().empty()) std::cerr << file.problem() << "\n";
  return file.problem().empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) { return argc == 3 ? make(argv[1], argv[2]) : 2; }
