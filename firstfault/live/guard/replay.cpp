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

std::string last_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  const auto line = text.rfind('\n');
  if (text.rfind("Traceback", 0) == 0 && line != std::string::npos) text = text.substr(line + 1);
  constexpr std::size_t kMost = 200;
  return text.substr(0, std::min(text.find('\n'), kMost));
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
  for (auto& name : nonfinite_ones(gradients, state.names)) result.bad.push_back(std::move(name));
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

/// Unchanged replays, compared with the step and with each other.
struct Replayer::Repeats {
  int n = 0, failed = 0;
  std::string error;          // of the first one that threw
  bool like_the_step = true;  // all failed as the step did, bit for bit
  bool like_each_other = true;
  ReplayResult first;  // that failed

  bool all_failed() const { return n > 0 && failed == n; }
};

Replayer::Repeats Replayer::repeat(const ReplayResult& step, int n) {
  Repeats repeats;
  for (; repeats.n < n; ++repeats.n) {
    ReplayResult replayed = run();
    if (replayed.finite) continue;
    if (replayed.threw && repeats.error.empty()) repeats.error = last_line(replayed.error);
    // A step that was refused wrote nothing to compare with.
    const bool written = step.result_bits != 0 || !write_;
    const auto same = [&](const ReplayResult& other, bool places) {
      return !replayed.threw && replayed.same_bits(other) && (!places || replayed.bad == other.bad);
    };
    repeats.like_the_step = repeats.like_the_step && same(step, written);
    if (repeats.failed++ == 0)
      repeats.first = std::move(replayed);
    else
      repeats.like_each_other = repeats.like_each_other && same(repeats.first, true);
  }
  return repeats;
}

Exactness Replayer::verify(const ReplayResult& step, int n) {
  Exactness verdict;
  const Repeats by_op = repeat(step, n);
  Repeats as_it_ran = by_op;
  verdict.origins = by_op.first.origins;
  if (!(by_op.all_failed() && by_op.like_the_step) && program_.use_compiled(true)) {
    verdict.compiled = true;
    as_it_ran = repeat(step, n);
    program_.use_compiled(false);
  }
  verdict.replays = as_it_ran.n;
  verdict.failed = as_it_ran.failed;
  // Of a step that threw, or took its data from elsewhere, it is not known whether the fault came back.
  const bool known = as_it_ran.error.empty() && !state_.batch.empty();
  verdict.deterministic = as_it_ran.failed == as_it_ran.n || !known;
  const bool same_places = !verdict.compiled || by_op.first.bad == step.bad;
  const bool steady = by_op.all_failed() && by_op.like_each_other && same_places;
  verdict.exact = as_it_ran.all_failed() && as_it_ran.like_the_step && (!verdict.compiled || steady);
  if (verdict.exact) return verdict;
  if (!as_it_ran.error.empty()) {
    verdict.why = "run again, the step threw: " + as_it_ran.error;
  } else if (as_it_ran.failed < as_it_ran.n && !known) {
    verdict.why = "the step was given no batch: where it takes its data from has gone on";
  } else if (!verdict.deterministic) {
    verdict.why = "the fault came back in " + std::to_string(verdict.failed) + " of " +
                  std::to_string(verdict.replays) + " replays: a race, unwritten memory, the hardware, or state of " +
                  "the program that was not found";
  } else if (as_it_ran.like_the_step && verdict.compiled) {
    verdict.why = by_op.failed == 0 ? "the step fails as it was compiled, and not when it is run op by op"
                                    : "run op by op, the step fails in another way than as it was compiled";
    verdict.why += ": other random numbers, another rounding, or what the compiler made of it";
  } else {
    verdict.why = "the step fails again, but with other bits: " + why_not_exact(state_);
  }
  return verdict;
}

}  // namespace firstfault::guard
