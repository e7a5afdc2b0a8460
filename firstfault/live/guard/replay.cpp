#include "firstfault/live/guard/replay.h"

#include <algorithm>
#include <chrono>
#include <exception>

#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include "firstfault/live/guard/step_check.h"
#include "firstfault/live/measure/scan.h"

namespace firstfault::guard {
namespace {

void set_gradient(const at::Tensor& parameter, const at::Tensor& gradient) { parameter.mutable_grad() = gradient; }

std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "unknown exception";
  }
}

std::vector<at::Tensor> gradients_now(const StepState& state) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : state.parameters) gradients.push_back(parameter.grad());
  return gradients;
}

// What the unchanged replays are short of, where the state before the step is not whole.
std::string why_not_exact(const StepState& state) {
  if (!state.batch_intact) return "the step writes into its batch, and no copy from before it was at hand";
  if (!state.gradients_intact) return "gradients were left over from before the step, and no copy was at hand";
  return "the program holds state that was not found: an attribute, a file, a loader, another thread";
}

}  // namespace

bool StepState::has_gradients() const {
  return std::any_of(gradients.begin(), gradients.end(), [](const at::Tensor& one) { return one.defined(); });
}

ReplayResult result_now(const StepState& state, const at::Tensor& loss, bool write) {
  const at::NoGradGuard no_grad;
  ReplayResult result;
  const auto gradients = gradients_now(state);
  if (loss.defined()) {
    const at::DisableRecordFunctionGuard unobserved;
    result.loss = loss.numel() == 1 ? loss.detach().to(at::kCPU, at::kDouble).item<double>() : 0;
    result.loss_bits = bits_of({loss});
    if (!all_finite({loss})) result.bad.emplace_back("loss");
  }
  result.gradient_bits = bits_of(gradients);
  for (const auto& name : check_result(gradients, state.names).names) result.bad.push_back(name);
  if (write) {
    const auto& written = state.written.tensors();
    result.result_bits = bits_of(written);
    if (!all_finite(written)) result.bad.emplace_back("what the optimizer wrote");
  }
  result.finite = result.bad.empty();
  return result;
}

Replayer::Replayer(StepState& state, ReplayProgram& program, Observe observe, bool write)
    : state_(state),
      program_(program),
      observe_(std::move(observe)),
      write_(write),
      gradients_after_(gradients_now(state)),
      buffers_after_(state.buffers.tensors()),
      random_after_(RandomState::now()) {}

Replayer::~Replayer() {
  const at::NoGradGuard no_grad;
  const at::DisableRecordFunctionGuard unobserved;
  try {
    if (!parameters_now_.tensors().empty()) parameters_now_.restore();
    for (std::size_t i = 0; i < state_.parameters.size(); ++i) set_gradient(state_.parameters[i], gradients_after_[i]);
    buffers_after_.restore();
    program_.resume();
    random_after_.restore();
  } catch (...) {  // the program's own resume(): what could be put back is
  }
}

void Replayer::put_back() {
  const at::NoGradGuard no_grad;
  const at::DisableRecordFunctionGuard unobserved;
  if (write_) state_.written.restore();
  if (!parameters_now_.tensors().empty()) parameters_now_.restore();
  for (std::size_t i = 0; i < state_.parameters.size(); ++i) {
    set_gradient(state_.parameters[i], unseen_copy(state_.gradients[i]));
  }
  state_.buffers.restore();
  program_.restore();
  state_.random.restore();
}

BatchTensors Replayer::fresh_batch() const {
  BatchTensors fresh;
  for (const at::Tensor& tensor : state_.batch) {
    fresh.push_back(unseen_copy(tensor));
    if (tensor.requires_grad() && fresh.back().defined()) fresh.back().set_requires_grad(true);
  }
  return fresh;
}

ReplayResult Replayer::run(const Change& change) {
  ReplayResult result;
  ++replays_;
  if (change.writes_parameters && parameters_now_.tensors().empty()) parameters_now_ = Copies(state_.parameters);
  const auto began = std::chrono::steady_clock::now();
  std::exception_ptr error;
  at::Tensor loss;
  try {
    put_back();
    BatchTensors batch = fresh_batch();
    if (change.batch) batch = change.batch(std::move(batch));
    if (change.begin) change.begin();
    const Run run = observe_([&] {
      try {
        loss = program_.run(batch, write_);
      } catch (...) {
        error = std::current_exception();
      }
    });
    result = result_now(state_, loss, write_);
    result.origins = run.origins;
  } catch (...) {
    error = std::current_exception();
  }
  if (change.end) change.end();
  if (error) {
    result.threw = true;
    result.finite = false;
    result.error = message_of(error);
  }
  if (write_) {
    const at::DisableRecordFunctionGuard unobserved;
    state_.written.restore();
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return result;
}

Exactness Replayer::verify(const ReplayResult& step, int n) {
  Exactness verdict;
  bool same = true;
  for (int i = 0; i < n; ++i) {
    const ReplayResult replayed = run();
    ++verdict.replays;
    if (replayed.finite) continue;
    if (verdict.failed++ == 0) verdict.origins = replayed.origins;
    // A step that was refused wrote nothing to compare with.
    const bool written = step.result_bits != 0 || !write_;
    same = same && !replayed.threw && replayed.same_bits(step) && (!written || replayed.bad == step.bad);
  }
  verdict.deterministic = verdict.failed == verdict.replays;
  verdict.exact = verdict.replays > 0 && verdict.deterministic && same;
  if (verdict.exact) return verdict;
  if (!verdict.deterministic) {
    verdict.why = "the fault came back in " + std::to_string(verdict.failed) + " of " +
                  std::to_string(verdict.replays) + " replays: a race, unwritten memory, the hardware, or state of " +
                  "the program that was not found";
  } else {
    verdict.why = "the step fails again, but with other bits: " + why_not_exact(state_);
  }
  return verdict;
}

}  // namespace firstfault::guard
