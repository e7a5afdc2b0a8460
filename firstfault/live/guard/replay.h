// A step that failed, run again: from the same state, with nothing changed or with one thing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "firstfault/live/guard/copies.h"
#include "firstfault/live/guard/random_state.h"
#include "firstfault/record/run.h"

namespace firstfault::guard {

/// The tensors of a batch, in the order in which the program's containers hold them.
using BatchTensors = std::vector<at::Tensor>;

/// The program's side of a replay. Its own state is what LibTorch does not know of: hyperparameters, Python's and
/// numpy's random state, what closures hold, train flags, loss scaler. Methods may throw; a replay then `threw`.
class ReplayProgram {
 public:
  virtual ~ReplayProgram() = default;
  /// Puts its own state back to where the step began.
  virtual void restore() = 0;
  /// Runs the step on this batch, which is its own. `write`: the optimizer makes its step; else it leaves parameters
  /// and its state as they are. Gives the loss, undefined where there is none.
  virtual at::Tensor run(const BatchTensors& batch, bool write) = 0;
  /// From here on run() uses compiled code, as the step did; or no longer, so that its ops can be seen. false: the
  /// program has none.
  virtual bool use_compiled(bool /*on*/) { return false; }
  /// Puts its own state to where the step had ended. After the last replay.
  virtual void resume() = 0;
};

/// What a step began with. Parameters are as they were, since a faulty step is not written; where it was, `written`
/// has them from before, and the optimizer's state.
struct StepState {
  BatchTensors batch;                  ///< as the step got it
  bool batch_intact = true;            ///< false: the step wrote into it, and there is no copy from before
  std::vector<at::Tensor> parameters;  ///< of the model and of the optimizers, each once
  std::vector<std::string> names;      ///< of them
  std::vector<at::Tensor> gradients;   ///< left over from before the step, undefined where there was none
  bool gradients_intact = true;
  Copies buffers;  ///< as they were before the step
  Copies written;
  RandomState random;

  bool has_gradients() const;
};

/// One thing that is different. All empty: the unchanged replay.
struct Change {
  std::string name;
  std::function<BatchTensors(BatchTensors)> batch;  ///< gets a fresh copy, gives what the step shall get
  std::function<void()> begin;  ///< after everything was put back, right before the step runs: writes what it likes
  std::function<void()> end;    ///< right after it, also where it threw
  bool writes_parameters =
      false;  ///< `begin` does: they, and the optimizer's state in StepState::written, are put back
};

struct ReplayResult {
  bool threw = false;
  std::string error;             ///< what it threw, or why it did not run
  bool finite = false;           ///< loss, gradients, and with `write` parameters and state
  std::vector<std::string> bad;  ///< those that are not: "loss", names of parameters
  double loss = 0;
  std::uint64_t loss_bits = 0, gradient_bits = 0;
  std::uint64_t result_bits = 0;  ///< of the parameters and the state that the optimizer wrote; 0 where it did not
  std::vector<Origin> origins;    ///< as a Trace of the replay gives them, explained
  double seconds = 0;

  bool same_bits(const ReplayResult& other) const noexcept {
    const bool written = result_bits != 0 && other.result_bits != 0;
    return loss_bits == other.loss_bits && gradient_bits == other.gradient_bits &&
           (!written || result_bits == other.result_bits);
  }
};

/// Of an exception's text what it is: a Python exception's text is its traceback, whose last line says it.
std::string last_line(std::string text);

/// What the step itself came to, for a replay to be compared with.
ReplayResult result_now(const StepState& state, const at::Tensor& loss, bool write);

/// Whether replays can prove anything.
struct Exactness {
  /// Every unchanged replay failed like the step, bit for bit. Of compiled code, whose numbers are others: those that
  /// used it, and those run op by op failed in the same places, bit for bit like each other.
  bool exact = false;
  bool deterministic = true;  ///< the fault came back every time
  bool compiled = false;      ///< the step used compiled code
  int replays = 0, failed = 0;
  std::string why;              ///< a sentence, "" where it is exact
  std::vector<Origin> origins;  ///< of the first replay that failed
};

/// Lives for the time of the replays of one step; when it goes, gradients, buffers, random state and the program's own
/// are what they were when it came. One thread, the one that trains.
class Replayer {
 public:
  /// `observe` runs the body under a trace of its own and gives what that saw: Watch::aside. `write`: the fault is in
  /// what the optimizer writes, so that a replay has to let it.
  using Observe = std::function<Run(const std::function<void()>& body)>;
  Replayer(StepState& state, ReplayProgram& program, Observe observe, bool write);
  ~Replayer();
  Replayer(const Replayer&) = delete;
  Replayer& operator=(const Replayer&) = delete;

  ReplayResult run(const Change& change = {});
  /// The unchanged replay `n` times, against what the step came to; and where op by op it is not the same, `n` times as
  /// it was compiled.
  Exactness verify(const ReplayResult& step, int n);
  int replays() const noexcept { return replays_; }
  const StepState& state() const noexcept { return state_; }

 private:
  void put_back();
  BatchTensors fresh_batch() const;
  struct Repeats;
  Repeats repeat(const ReplayResult& step, int n);

  StepState& state_;
  ReplayProgram& program_;
  Observe observe_;
  bool write_;
  int replays_ = 0;
  std::vector<at::Tensor> gradients_after_;  // the objects themselves
  Copies buffers_after_;
  Copies parameters_now_;  // made for the first change that writes them
  RandomState random_after_;
};

}  // namespace firstfault::guard
