// Watches a whole run: forwards what the observer sees to the tracer, and measures each step's health beside it.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "firstfault/events/experiment.h"
#include "firstfault/guard/clip_trend.h"
#include "firstfault/live/trace/tracer.h"
#include "firstfault/live/watch/activations.h"
#include "firstfault/live/watch/facts.h"
#include "firstfault/live/watch/growth_in_time.h"
#include "firstfault/live/watch/parameters.h"
#include "firstfault/live/watch/recorder.h"
#include "firstfault/live/watch/sites.h"

namespace firstfault::watch {

/// How much is observed. What costs is that every op passes the observer: about a twentieth of a step.
enum class Level : std::uint8_t {
  gradients,  ///< no op: gradients, parameters, updates, and the loss that is given
  modules,    ///< every op in the first steps, then in one step of eight
  ops,        ///< every op of every step, so that a fault has its exact origin
};

inline constexpr std::int64_t kMostOrigins = 64;  ///< each costs resolving a stack

struct MonitorOptions {
  Level level = Level::ops;
  DetectorOptions thresholds;
  std::string run_file;  ///< "": in memory only
};

class Monitor final : public intercept::Listener {
 public:
  Monitor(const MonitorOptions& options, std::unique_ptr<intercept::Places> places);
  ~Monitor() override;

  // From the observer, on any thread.
  void on_op_start(intercept::Frame& frame, const at::RecordFunction& record) override;
  void on_op_end(intercept::Frame& frame, const at::RecordFunction& record) override;
  void on_node_start(intercept::Frame& frame) override;
  void on_node_end(intercept::Frame& frame) override;
  void on_other_end(intercept::Frame& frame, const at::RecordFunction& record) override;
  void on_optimizer(bool begins) override;

  // From the facade, on any thread. Nothing but start() throws.

  void set_names(std::vector<std::string> modules, const std::vector<trace::NamedTensor>& tensors);
  void set_setup(Setup setup);
  void hold(const std::vector<HeldTensor>& held);
  void start();
  /// Around an optimizer's step. `ranged`: the optimizer opens a range that on_optimizer hears of, whose end comes
  /// after after_step(); else after_step() ends the step.
  void before_step(std::int32_t optimizer, const std::vector<GroupNumbers>& groups, bool ranged);
  void after_step(std::int32_t optimizer, const std::vector<GroupNumbers>& groups, bool ranged);
  void loss(double value);
  void log(const std::string& name, double value);
  std::int64_t steps();
  /// The step that is being made is refused: nothing of it is written.
  void refused();
  /// State of the optimizers is of an older step now, or gone: that is no loss of it.
  void rolled_back();
  /// Gradients of watched parameters were scaled where no op shows it.
  void clipped(double norm, double coefficient, const at::Tensor& gradient);
  /// What a guard did to a step that has ended, and of each step whose gradients it measured: whether it clipped them.
  void acted(const GuardAction& action);
  void measured(const GuardAction& clip, bool clipped);
  /// See Watch::learned.
  void learned(std::vector<Origin> origins, const std::vector<Experiment>& experiments);
  /// The mean of what backward() was called on in the open step, where that is known.
  std::optional<double> pending_loss();
  /// See Tracer; false where not every op is seen.
  bool wrote_finite(const at::Tensor& tensor);
  /// From here to end_aside() all is watched by a trace of its own, with the same names and places, and is no part of
  /// the run. Between steps, on the thread that trains; nobody else may observe. `died`: by an exception.
  void begin_aside();
  Run end_aside(bool died);
  /// From here to resume() nothing is watched, and somebody else may observe. Between steps.
  void pause();
  void resume();
  /// In a step whose optimizer undoes the loss scale itself, as fused ones do: the scale, and whether the optimizer
  /// found Inf in the gradients and passes the step over.
  void scaled(double scale, bool passed_over);
  void close(RunState state);

  Run run();
  std::string path();
  bool running() const noexcept { return running_.load(); }

 private:
  /// Of a tensor with one element that backward() could be called on.
  struct Scalar {
    std::int64_t sequence = -1;
    double value = 0;
    const intercept::OpTraits* op = nullptr;
  };
  struct Where {
    std::int32_t module = -1;
    std::int32_t after = -1;  ///< the module that ran last
  };

  /// What an optimizer's group held after its last step.
  struct KnownState {
    double steps = 0;
    float second = Health::kAbsent;
  };

  bool in_parent() const noexcept;
  template <class Body>
  void guarded(Body&& body) noexcept;
  void give_up(const char* reason) noexcept;

  void look(intercept::Frame& frame, const at::RecordFunction& record);
  void look_forward(intercept::Frame& frame, const at::RecordFunction& record);
  void look_backward(const intercept::Frame& frame, const at::RecordFunction& record);
  void note_order(const intercept::Frame& frame);
  void look_at_batch(const intercept::Frame& frame);
  void look_at_scaler(const intercept::Frame& frame);
  void look_at_clipping(const intercept::Frame& frame);
  void measure_activation(const intercept::Frame& frame, const at::Tensor& output, Where where);
  void follow_in_time(const intercept::Frame& frame, const at::Tensor& output, std::int32_t module);
  void note_growth_in_time();
  void measure_prediction(const at::Tensor& prediction);
  void measure_batch(const at::Tensor& tensor, SiteRole role);
  void remember_scalar(const intercept::Frame& frame, const at::Tensor& output);
  void note_backward(const intercept::Frame& frame);
  void note_accumulation();
  std::int32_t order_of(std::int32_t module);
  std::string module_name(std::int32_t module) const;
  void put(std::int32_t site, const Health& health);
  void put_groups(std::int32_t optimizer, const std::vector<GroupNumbers>& groups);
  void put_parameters(std::int32_t optimizer);
  Site parameter_site(SiteRole role, const Parameters::Tracked& tracked);

  void settle_steps();
  void end_unobserved_step();
  static void set_loss(StepRow& row, double value);
  void finish_loss();
  void finish_row();
  void begin_row();
  void flush_waiting();
  void record_row(StepRow row);
  void note_clip_change(const guard::ClipChange& change);
  void record_clip_changes(std::int64_t until);
  void record_origins();

  struct Aside;

  const MonitorOptions options_;
  trace::Tracer tracer_;
  std::unique_ptr<Aside> aside_;
  bool paused_running_ = false, paused_observing_ = false;
  std::atomic<bool> running_{false};
  std::atomic<bool> observing_{false};
  std::atomic<bool> closed_{false};
  std::atomic<bool> half_seen_{false};
  std::atomic<bool> in_optimizer_{false};
  std::atomic<bool> ordering_{true};
  std::atomic<bool> measuring_{true};   ///< activations and what losses are given, in this step
  std::atomic<bool> recurrent_{false};  ///< the forward of this step has a loop over time, and is measured
  std::atomic<bool> batch_full_{false};
  std::atomic<std::uint64_t> settled_{0};  ///< steps of the tracer that have a row
  pid_t process_ = 0;
  std::chrono::steady_clock::time_point began_;

  std::mutex mutex_;  ///< of all that follows; no tensor is dropped and no Python run while it is held
  Recorder recorder_;
  Sites sites_;
  Activations activations_;
  Parameters parameters_;
  FactFinder facts_;
  GrowthsInTime in_time_;
  std::map<std::pair<std::int32_t, const void*>, std::array<double, 2>> lambdas_;  ///< by loop: the first, the largest
  guard::ClipTrend clip_trend_;
  std::map<std::string, std::uintptr_t> clip_sites_;  ///< by parameter, "": of all
  std::vector<Transition> clip_changes_;              ///< of steps whose row is not recorded yet
  std::int64_t clips_recorded_ = 0;
  std::vector<std::string> modules_;
  std::vector<trace::NamedTensor> named_;
  std::vector<bool> leaf_;           ///< by module: has none inside
  std::vector<std::int32_t> order_;  ///< by module; -1: not entered yet
  std::int32_t next_order_ = 0;
  std::map<std::pair<std::int32_t, std::size_t>, KnownState> states_;  ///< by optimizer and group
  std::vector<const c10::TensorImpl*> batch_seen_;                     ///< in this step; compared, never followed
  std::array<int, 2> batch_sites_{};                                   ///< inputs, targets
  std::map<std::int32_t, float> usual_absmax_;                         ///< by site of the batch
  StepRow row_;
  std::optional<StepRow> waiting_;  ///< the last row, while it has no loss: one that is given now belongs to it
  bool row_open_ = false;           ///< something happened since the last row
  std::vector<double> roots_;       ///< losses that backward() was called on in this step
  Scalar pending_root_;             ///< of the backward that runs
  bool root_pending_ = false;       ///< it has not reached a parameter yet
  const intercept::OpTraits* root_op_ = nullptr;
  bool loss_given_ = false;
  double loss_op_value_ = 0;                ///< what the last loss op gave
  double loss_factor_ = StepRow::kUnknown;  ///< by which the program multiplied that before backward()
  std::int64_t accumulations_ = 0;
  bool amp_checked_ = false, stepped_ = false;
  double loss_scale_ = StepRow::kUnknown;
  std::array<Scalar, 64> scalars_;
  std::int64_t step_ = 0;
  std::size_t known_origins_ = 0;
  std::int64_t recorded_origins_ = 0;
  std::vector<Origin> learned_;  ///< origins of replays
};

template <class Body>
void Monitor::guarded(Body&& body) noexcept {
  if (!running_.load() || !in_parent()) return;
  try {
    body();
  } catch (const std::exception& error) {
    give_up(error.what());
  } catch (...) {
    give_up("unknown exception");
  }
}

}  // namespace firstfault::watch
