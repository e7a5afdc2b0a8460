// The provenance tracer: follows bad values from op to op, knows steps, phases and sinks, and finds the origins.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "firstfault/live/intercept/observer.h"
#include "firstfault/live/intercept/place_predictor.h"
#include "firstfault/live/trace/forward_ops.h"
#include "firstfault/live/trace/graph.h"
#include "firstfault/live/trace/slots.h"
#include "firstfault/live/trace/tensor_names.h"
#include "firstfault/record/run.h"

namespace firstfault::trace {

struct TracerOptions {
  bool forward = true;  ///< phases in which op outputs are looked at
  bool backward = true;
  bool optimizer = true;
  std::int64_t max_ops = 0;  ///< stop looking after so many ops; 0: never
};

/// Of the op, or of the one around it that was located.
intercept::PlaceId place_of(const intercept::Frame& frame);

class Tracer final : public intercept::Listener {
 public:
  Tracer(TracerOptions options, std::unique_ptr<intercept::Places> places);
  ~Tracer() override;

  void on_op_start(intercept::Frame& frame, const at::RecordFunction& record) override;
  void on_op_end(intercept::Frame& frame, const at::RecordFunction& record) override;
  void on_node_start(intercept::Frame& frame) override;
  void on_node_end(intercept::Frame& frame) override;
  void on_other_end(intercept::Frame& frame, const at::RecordFunction& record) override;
  void on_optimizer(bool begins) override;

  // The rest is called by the session, from any thread, without the observer's mutex.

  /// Forgets everything but the names. Not while observing.
  void reset();
  /// Replaces the watched tensors. `modules` only ever grows: what was recorded goes on naming them by index.
  /// While paused nothing is looked at, and what was known of tensors that are written is forgotten.
  void pause(bool paused) { paused_.store(paused); }
  void set_names(std::vector<std::string> modules, std::vector<NamedTensor> tensors);
  /// Observation has ended: a step that is still open is judged as it stands. `died`: the program ended by an error, to
  /// which bad values may have led that went into nothing else.
  void finish(bool died = false);

  /// nullopt: no op seen here produced the tensor. `stopped`: observation has ended.
  std::optional<Diagnosis> diagnose(const at::Tensor& whole, bool stopped);
  Run run();

  // For who watches a whole run.

  Phase phase() const { return phase_now(); }
  /// Counts up whenever a step has been judged.
  std::uint64_t steps_ended() const noexcept { return steps_ended_.load(std::memory_order_relaxed); }
  /// In on_node_start: the node is one that backward() was called on.
  bool begins_backward() const;
  /// The module that the calling thread was in last, -1: none.
  std::int32_t last_module() const;
  /// The module that an op was called from, -1: none is known. While its record is open.
  std::int32_t module_of(const intercept::Frame& frame) const { return module_at(place_of(frame)); }
  /// Part of the batch, as far as can be seen: no watched tensor, and no op since the model was entered wrote it.
  bool is_from_before_the_model(const at::Tensor& tensor);
  /// The optimizer's last step wrote it, by ops that were seen, and all of it is finite.
  bool wrote_finite(const at::Tensor& tensor);
  /// What is finite is not known to be any longer: memory was written where no op shows it.
  void forget_finite();
  /// How many origins of steps that have ended are known; a step with harm may also replace some.
  std::size_t reported() const;
  std::vector<Origin> reported_from(std::size_t first);
  /// Begins anew with this number, after steps in which nothing was observed; keeps what was reported.
  void resume_at(std::int64_t step);
  intercept::Places& places() noexcept { return *places_; }

 private:
  /// One output (or written argument) of an op that is ending.
  struct Output {
    const at::Tensor* whole;
    at::Tensor values = {};   ///< of a sparse one; undefined for others
    std::int16_t result = 0;  ///< place among the op's results
    std::int16_t item = -1;
    bool written = false;  ///< an argument that the op wrote
    bool auxiliary = false;
    bool scanned = false;
    std::uint8_t bits = 0;
    BatchLayout batch = {};
    Bounds bounds = {};
    /// What is looked at.
    const at::Tensor& tensor() const { return values.defined() ? values : *whole; }
  };
  using Outputs = c10::SmallVector<Output, 4>;
  struct Context;
  struct SinkHit {
    std::int32_t node;  ///< of the value in the sink
    std::string sink;
  };
  struct Reported {
    Origin origin;
    intercept::PlaceId place;
    std::int32_t node;
  };
  using Frame = intercept::Frame;
  using Input = intercept::Input;
  using OpTraits = intercept::OpTraits;

  std::int32_t module_at(intercept::PlaceId place) const { return place >= 0 ? places_->module_of(place) : -1; }

  // tracer_ops.cpp: an op begins
  void read_inputs(Frame& frame, const at::RecordFunction& record);
  void look_before(Frame& frame, Input& input);
  void locate(Frame& frame);
  void enter_model(const Frame& frame);
  void remember_leaves(const Frame& frame);
  bool is_leaf_read(const at::Tensor& tensor) const;
  std::int32_t owner_of_parameters(const Frame& frame);

  // tracer_results.cpp: it ends
  Outputs outputs_of(const Frame& frame, const at::RecordFunction& record);
  void count_uninspected(const at::Tensor& tensor);
  std::int32_t settle_all(Frame& frame, Outputs& outputs, intercept::PlaceId exact);
  void end_compute(Frame& frame, const at::RecordFunction& record);
  void end_alloc(const Frame& frame, const at::RecordFunction& record);
  void end_lift(const Frame& frame, const at::RecordFunction& record);
  void settle(Frame& frame, Output& output, intercept::PlaceId exact);
  void write_slot(Frame& frame, const Output& output, intercept::PlaceId exact);
  void forget_written(const Frame& frame, const at::RecordFunction& record);
  void forget_unmarked(const Frame& frame);
  void forget_storage(const at::Tensor& tensor);
  void note_read_out(const Frame& frame);
  void note_absorbed(const Frame& frame, const Outputs& outputs);
  ForwardOp* remember_forward(Frame& frame, const at::RecordFunction& record);

  // tracer_finite.cpp: which outputs are looked at
  std::uint8_t scan_outputs(const Frame& frame, Outputs& outputs);
  void find_bounds(const Frame& frame, Outputs& outputs);
  Bounds bounds_of_input(const Input& input, const at::Tensor& result);
  Bounds look_at_parameter(const at::Tensor& tensor);
  bool surely_finite(const Frame& frame, const Outputs& outputs);
  /// By buffers of compiled regions, or by other processes.
  bool writes_are_unseen() const {
    return saw_compiled_.load(std::memory_order_relaxed) || unseen_writes_.load(std::memory_order_relaxed);
  }

  // tracer_batch.cpp: the batch axis
  void read_batch_size(const Frame& frame);
  BatchDims batch_dims(const Frame& frame);
  std::optional<BatchDim> batch_dim_of(const at::Tensor& tensor, bool floating);

  // tracer_nodes.cpp: one bad value
  Context context(const Frame& frame) const;
  std::vector<Edge> bad_inputs(Frame& frame, std::int32_t item);
  bool is_taken_for_data(const Frame& frame, const Input& input) const;
  void take_for_data(Edge& edge, const Input& input, std::uint64_t number);
  std::int32_t make_node(Frame& frame, const Output& output, intercept::PlaceId exact);
  std::int32_t add_node(Node node);
  const ForwardOp* compiled_region(const at::Tensor& tensor);
  std::int32_t add_outside(const at::Tensor& tensor, std::uint8_t bits, bool unwritten, std::uint64_t number);
  void name_backward(Node& node, Frame& around);
  void keep_evidence(Node& node, Frame& frame, const Output& output);

  // tracer_steps.cpp: phases, steps, sinks
  Phase phase_now() const;
  bool looks_at(Phase phase) const;
  void begin_step_if_pending(const Frame& frame, Phase phase);
  void roll_graph();
  void notice_optimizer(Frame& frame);
  void guess_optimizer();
  void confirm_optimizer();
  void begin_optimizer();
  void end_optimizer();
  std::int32_t node_in_sink(const at::Tensor& whole, bool may_be_mask);
  void check_sink(const at::Tensor& tensor, const std::string& sink, bool may_be_mask = false);
  void check_gradients();
  void check_parameters();
  void check_buffers();
  void check_optimizer_state();
  void check_roots();
  void check_loose_ends();
  void end_step();
  void forget_values(std::int64_t step);

  // tracer_report.cpp: plain values for the reading half
  void report_step(std::vector<Reported>& into);
  void report_faults(std::vector<Reported>& into);
  void report_notes(std::vector<Reported>& into);
  void report(std::vector<Reported>& into, Reported fresh);
  Reported describe(const Graph& graph, std::int32_t id) const;
  void describe_outside(const Graph& graph, const Node& node, Origin& origin) const;
  bool describe_number(const Graph& graph, std::int32_t id, Origin& origin) const;
  void name_reader(const Node& reader, Origin& origin) const;
  std::vector<PathStep> describe_path(const Graph& graph, std::int32_t origin, std::int32_t target) const;
  std::string describe_storage(std::uintptr_t storage, const char* otherwise) const;
  std::string describe_target(const at::Tensor& tensor, const Graph& graph, std::int32_t node) const;
  std::vector<Origin> with_stacks(std::vector<Reported> reported);

  const TracerOptions options_;
  const std::unique_ptr<intercept::Places> places_;
  std::atomic<std::uint64_t> records_{0};

  // Guarded by the observer's mutex.
  SlotTable slots_;
  Graph graph_;
  Graph previous_;  ///< of the last step that had bad values, for diagnoses after the step
  ForwardOps forwards_;
  TensorNames names_;
  std::atomic<std::uint64_t> names_generation_{0};
  std::atomic<bool> watching_{false};  ///< of names_, readable without the mutex
  std::size_t evidence_kept_ = 0;      ///< in graph_
  std::vector<SinkHit> hits_;
  std::vector<SinkHit> guessed_hits_;  ///< of what may be an optimizer
  std::vector<std::int32_t> roots_;
  std::atomic<bool> saw_compiled_{false};
  std::atomic<bool> unseen_writes_{false};  ///< a collective has run
  ForwardOp compiled_forward_;              ///< the compiled region that is running; scratch
  ForwardOp compiled_backward_;             ///< that of the last compiled region to run backward; `bad_step` says when
  std::map<std::string, std::int64_t> uninspected_;
  std::vector<Reported> reported_;
  std::int64_t dropped_origins_ = 0;
  std::int64_t dropped_nodes_ = 0;
  std::int64_t unintended_ = 0;  ///< living unintended bad values; 0: no sink has to be checked
  std::int64_t step_ = 0;
  std::atomic<bool> paused_{false};
  std::atomic<bool> optimizer_open_{false};
  std::atomic<bool> optimizer_ranges_{false};  ///< torch.optim marks its steps itself; no need to guess
  std::atomic<bool> model_entered_{false};
  /// The first record of the model with gradients on, since the step or its last backward began; 0: none.
  std::atomic<std::uint64_t> model_first_{0};
  /// What was written between these was made by an earlier forward and backward of this step; 0: there is none.
  std::atomic<std::uint64_t> made_from_{0}, made_to_{0};
  std::atomic<std::uint64_t> steps_ended_{0};
  std::atomic<bool> step_pending_{false};  ///< an optimizer step has ended; the next op begins another
  std::atomic<bool> backward_done_{false};
  std::atomic<bool> gradients_stale_{true};
  std::atomic<bool> guessed_optimizer_{false};
  bool guessed_write_ = false;
  bool optimizer_called_ = false, amp_checked_ = false;
  std::unordered_set<std::uintptr_t>
      leaves_;  ///< storages of leaves that the step's forward read, while nothing is watched
  std::vector<std::uintptr_t> gradients_, parameters_;  ///< storages, sorted: where a hand-written optimizer begins
  std::atomic<std::int64_t> batch_size_{0};             ///< of the step, 0: not known yet
  std::atomic<bool> batch_void_{false};                 ///< something in this step contradicts it: no sample is named
  struct ReadOut {
    std::int64_t step = -1;
    std::int32_t node = -1;
  };
  ReadOut read_out_;                          ///< the last bad value that the program took out as a number
  std::atomic<std::uint64_t> step_start_{0};  ///< record that began the step
  std::atomic<std::uint64_t> optimizer_start_{0};
  std::uint64_t model_start_ = 0;           ///< record that read the batch
  std::atomic<std::int32_t> nodes_end_{0};  ///< of graph_, readable without the mutex
};

}  // namespace firstfault::trace
