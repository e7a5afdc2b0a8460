// The tracer between ops: phases, where a step begins and ends, and the sinks where a bad value does harm.
#include <algorithm>
#include <string_view>

#include <ATen/core/grad_mode.h>
#include <c10/core/GradMode.h>

#include "firstfault/live/measure/scan.h"
#include "firstfault/live/trace/tracer_detail.h"

namespace firstfault::trace {
namespace {

using intercept::Frame;
using intercept::Input;
constexpr auto kRelaxed = std::memory_order_relaxed;

std::string quoted(const char* what, const std::string& name) { return std::string(what) + " '" + name + "'"; }

}  // namespace

Tracer::Tracer(TracerOptions options, std::unique_ptr<intercept::Places> places)
    : options_(options), places_(std::move(places)) {}

Tracer::~Tracer() = default;

// Inside a closure (LBFGS) the forward and backward run within Optimizer.step, with gradients on.
Phase Tracer::phase_now() const {
  if (intercept::frames().in_backward()) return Phase::backward;
  if (optimizer_open_.load(kRelaxed) && !c10::GradMode::is_enabled()) return Phase::optimizer;
  if (watching_.load(kRelaxed) && !model_entered_.load(kRelaxed)) return Phase::data;
  return Phase::forward;
}

bool Tracer::looks_at(Phase phase) const {
  if (paused_.load(kRelaxed)) return false;
  if (options_.max_ops > 0 && records_.load(kRelaxed) > static_cast<std::uint64_t>(options_.max_ops)) return false;
  switch (phase) {
    case Phase::backward: return options_.backward;
    case Phase::optimizer: return options_.optimizer;
    default: return options_.forward;
  }
}

void Tracer::on_node_start(Frame& frame) {
  intercept::fail_here_if(intercept::FailPoint::node_start);
  if (guessed_optimizer_.load(kRelaxed)) {
    const std::lock_guard lock(intercept::observer_mutex());
    end_optimizer();
  }
  // The first node after an op that the program called itself is the one that backward() was called on.
  ThreadNotes& thread = notes();
  thread.at_root = false;
  constexpr int kEngineAndNode = 2;
  if (intercept::frames().backward_depth() != kEngineAndNode || thread.top_ops == thread.top_ops_at_root) return;
  thread.top_ops_at_root = thread.top_ops;
  thread.at_root = true;
  if (const auto first = model_first_.exchange(0); first && made_from_.load(kRelaxed) == 0) made_from_.store(first);
  made_to_.store(0, kRelaxed);
  const std::lock_guard lock(intercept::observer_mutex());
  const ForwardOp* forward = forwards_.find(frame.sequence, frame.forward_thread);
  if (!forward || forward->bad_step != step_ || !graph_.has(forward->bad_node)) return;
  constexpr std::size_t kMaxRoots = 64;
  if (roots_.size() < kMaxRoots) roots_.push_back(forward->bad_node);
}

void Tracer::on_node_end(Frame& frame) {
  if (std::string_view(frame.record->name()).starts_with(kCompiledFunction)) {
    const std::lock_guard lock(intercept::observer_mutex());
    if (const ForwardOp* region = forwards_.find(frame.sequence, frame.forward_thread)) {
      compiled_backward_ = *region;
      compiled_backward_.bad_step = step_;
    }
  }
  if (backward_done_.load(kRelaxed) && gradients_stale_.load(kRelaxed)) return;
  gradients_stale_.store(true, kRelaxed);
  backward_done_.store(true, kRelaxed);
}

void Tracer::on_other_end(Frame& frame, const at::RecordFunction& record) {
  const bool compiled = record.name() == kCompiledFunction;
  const auto place = compiled ? places_->here(-1, /*with_stack=*/true) : intercept::kNowhere;
  const std::lock_guard lock(intercept::observer_mutex());
  const auto sequence = record.seqNr();
  const auto thread = record.threadId();
  ForwardOp& entry = forwards_.slot(sequence, thread);
  if (entry.sequence == sequence && entry.thread == thread && entry.op != &intercept::custom_function_traits()) return;
  entry = ForwardOp{};
  entry.sequence = sequence;
  entry.thread = thread;
  entry.op = &intercept::custom_function_traits();
  entry.name = forwards_.intern(record.name());
  entry.after = notes().last_module;
  entry.place = compiled ? place : frame.place;  // as an op inside it was located
  entry.module = entry.place >= 0 ? module_at(entry.place) : notes().last_module;
  if (!compiled) return;
  model_entered_.store(true, kRelaxed);
  saw_compiled_.store(true, kRelaxed);
}

void Tracer::on_optimizer(bool begins) {
  intercept::fail_here_if(intercept::FailPoint::optimizer);
  const std::lock_guard lock(intercept::observer_mutex());
  optimizer_ranges_.store(true, kRelaxed);
  guessed_optimizer_.store(false, kRelaxed);
  guessed_write_ = false;
  guessed_hits_.clear();
  begins ? begin_optimizer() : end_optimizer();
}

// LibTorch's optimizers and hand-written ones open no range: an op without gradients that reads a watched
// parameter's gradient begins one, and it counts as a step once a parameter has been written.
void Tracer::notice_optimizer(Frame& frame) {
  if (optimizer_ranges_.load(kRelaxed)) return;
  const bool grad_mode = c10::GradMode::is_enabled();
  if (grad_mode && !guessed_optimizer_.load(kRelaxed)) return;
  const std::lock_guard lock(intercept::observer_mutex());
  if (grad_mode) return end_optimizer();
  if (!names_.watching()) {  // then every tensor that an optimizer could hold is one
    const auto is_stepped = [&](const Input& input) { return input.written && is_leaf_read(input.tensor); };
    if (std::none_of(frame.inputs.begin(), frame.inputs.end(), is_stepped)) return;
    guess_optimizer();
    return confirm_optimizer();
  }
  if (gradients_stale_.exchange(false)) {
    gradients_.clear();
    parameters_.clear();
    for (const NamedTensor& named : names_.tensors()) {
      if (named.role != TensorRole::parameter) continue;
      if (named.tensor.has_storage()) parameters_.push_back(identity_of(named.tensor));
      const at::Tensor& gradient = named.tensor.grad();
      if (gradient.defined() && gradient.has_storage()) gradients_.push_back(identity_of(gradient));
    }
    std::sort(gradients_.begin(), gradients_.end());
    std::sort(parameters_.begin(), parameters_.end());
  }
  const auto touches = [&](const std::vector<std::uintptr_t>& storages, bool written) {
    return std::any_of(frame.inputs.begin(), frame.inputs.end(), [&](const Input& input) {
      const bool counts = written ? input.written : !input.written || !frame.traits->overwrites(input.argument);
      return counts && std::binary_search(storages.begin(), storages.end(), identity_of(input.tensor));
    });
  };
  if (touches(gradients_, /*written=*/false)) guess_optimizer();
  if (guessed_optimizer_.load(kRelaxed) && touches(parameters_, /*written=*/true)) confirm_optimizer();
}

// The gradients are looked at before this op changes them, but clipping, logging and GradScaler read them too: what is
// found counts only once a parameter is written.
void Tracer::guess_optimizer() {
  if (guessed_optimizer_.exchange(true)) return;
  optimizer_open_.store(true, kRelaxed);
  optimizer_start_.store(records_.load(kRelaxed), kRelaxed);
  if (unintended_ == 0) return;
  std::vector<SinkHit> known = std::exchange(hits_, {});
  check_gradients();
  guessed_hits_ = std::exchange(hits_, std::move(known));
}

void Tracer::confirm_optimizer() {
  guessed_write_ = true;
  check_roots();
  hits_.insert(hits_.end(), guessed_hits_.begin(), guessed_hits_.end());
  guessed_hits_.clear();
}

void Tracer::begin_optimizer() {
  // Right after another optimizer's step: what is found from here on must not be lost when an op begins the next one.
  if (step_pending_.exchange(false)) {
    ++step_;
    step_start_.store(records_.load(kRelaxed), kRelaxed);
    if (!graph_.empty()) roll_graph();
  }
  optimizer_open_.store(true, kRelaxed);
  optimizer_start_.store(records_.load(kRelaxed) + 1, kRelaxed);
  check_roots();
  if (unintended_ == 0 || amp_checked_) return;  // what GradScaler found, it skips: also inside a fused kernel
  check_gradients();
}

void Tracer::end_optimizer() {
  optimizer_open_.store(false, kRelaxed);
  const bool guessed = guessed_optimizer_.exchange(false);
  guessed_hits_.clear();
  if (guessed && !std::exchange(guessed_write_, false)) return;  // read gradients only: clipping, logging
  optimizer_called_ = true;
  if (unintended_ > 0) {
    check_parameters();
    check_optimizer_state();
  }
  end_step();
}

bool Tracer::wrote_finite(const at::Tensor& tensor) {
  const auto start = optimizer_start_.load(kRelaxed);
  if (start == 0 || !may_hold_bad_values(tensor)) return false;
  const std::lock_guard lock(intercept::observer_mutex());
  const Slot* slot = slots_.find(tensor);
  return slot && slot->state == 0 && slot->written >= start && slot->is_of(tensor);
}

void Tracer::forget_finite() {
  const std::lock_guard lock(intercept::observer_mutex());
  slots_.forget_finite();
}

// -1: finite, meant, or not inspected.
std::int32_t Tracer::node_in_sink(const at::Tensor& whole, bool may_be_mask) {
  const at::Tensor values = measure::explicit_values(whole);
  const at::Tensor& tensor = values.defined() ? values : whole;
  if (!tensor.defined() || !measure::can_scan(tensor)) return -1;
  const std::uint8_t bits = measure::scan(tensor);
  if (!bits) return -1;
  const Slot* slot = slots_.find(tensor);
  if (may_be_mask && bits == kNegInf) return -1;
  if (slot && (slot->state & kAnyBad) && graph_.has(slot->node)) return graph_[slot->node].intended ? -1 : slot->node;
  const auto node = add_outside(tensor, bits, slot && (slot->state & kUnwritten), records_.load(kRelaxed));
  Slot& fresh = slots_.insert(tensor, records_.load(kRelaxed));
  fresh.state = bits;
  fresh.node = node;
  slots_.pin(fresh, tensor);
  return node;
}

void Tracer::check_sink(const at::Tensor& tensor, const std::string& sink, bool may_be_mask) {
  const auto node = node_in_sink(tensor, may_be_mask);
  if (graph_.has(node)) hits_.push_back({node, sink});
}

void Tracer::check_roots() {
  for (const auto root : roots_) {
    if (graph_.has(root)) hits_.push_back({root, "loss"});
  }
  roots_.clear();
}

void Tracer::check_gradients() {
  for (const NamedTensor& named : names_.tensors()) {
    if (named.role == TensorRole::parameter) check_sink(named.tensor.grad(), quoted("gradient of", named.name));
  }
}

void Tracer::check_parameters() {
  for (const NamedTensor& named : names_.tensors()) {
    if (named.role == TensorRole::parameter) check_sink(named.tensor, quoted("parameter", named.name));
  }
  if (names_.watching()) return;
  for (auto id = graph_.first(); id < graph_.end(); ++id) {
    const Node& node = graph_[id];
    if (node.step == step_ && node.writes_leaf && node.phase == Phase::optimizer) hits_.push_back({id, "parameter"});
  }
}

void Tracer::check_buffers() {
  for (const NamedTensor& named : names_.tensors()) {
    if (named.role == TensorRole::buffer) check_sink(named.tensor, quoted("buffer", named.name), /*may_be_mask=*/true);
  }
}

// What the optimizer wrote and still lives after its step, but no parameter: moments, momentum.
void Tracer::check_optimizer_state() {
  slots_.for_each_living_bad([&](const Slot& slot) {
    if (!graph_.has(slot.node)) return;
    const Node& node = graph_[slot.node];
    if (node.step != step_ || node.phase != Phase::optimizer || node.intended) return;
    if (!names_.owner_of(node.storage.living()).named) hits_.push_back({slot.node, "optimizer state"});
  });
}

void Tracer::end_step() {
  check_roots();
  if (unintended_ > 0 || !hits_.empty()) {
    check_buffers();
    const bool skipped_by_scaler = amp_checked_ && !optimizer_called_;
    if (!optimizer_called_ && !skipped_by_scaler && backward_done_.load(kRelaxed)) check_gradients();
    report_step(reported_);
  }
  hits_.clear();
  roots_.clear();
  leaves_.clear();
  amp_checked_ = optimizer_called_ = false;
  batch_size_.store(0, kRelaxed);
  batch_void_.store(false, kRelaxed);
  backward_done_.store(false, kRelaxed);
  model_entered_.store(false, kRelaxed);
  model_first_.store(0, kRelaxed);
  made_from_.store(0, kRelaxed);
  made_to_.store(0, kRelaxed);
  step_pending_.store(true, kRelaxed);
  steps_ended_.fetch_add(1, kRelaxed);
}

void Tracer::begin_step_if_pending(const Frame& frame, Phase phase) {
  if (!step_pending_.load(kRelaxed) || phase == Phase::optimizer || frame.traits->amp_update) return;
  const std::lock_guard lock(intercept::observer_mutex());
  if (!step_pending_.exchange(false)) return;
  ++step_;
  step_start_.store(frame.number, kRelaxed);
  if (!graph_.empty()) roll_graph();
  // The op that begins the step may be the model's first: locate() ran before the flags were reset.
  if (module_at(frame.place) >= 0) enter_model(frame);
}

// Only what living storages still hold goes over into the next step, collapsed to its origin.
void Tracer::roll_graph() {
  Graph kept(graph_.end());
  unintended_ = 0;
  evidence_kept_ = 0;
  slots_.for_each_living_bad([&](Slot& slot) {
    if (!graph_.has(slot.node) || kept.full()) return;
    const bool intended = graph_[slot.node].intended;
    const auto origin = intended ? slot.node : graph_.origins_of(slot.node).front();
    Node node = graph_[origin];
    if (graph_.has(node.reader) && node.kind != Node::Kind::op) {
      const Node& reader = graph_[node.reader];
      node.op = reader.op;
      node.inner = reader.inner;
      node.outer = reader.outer;
      node.module = reader.module;
      node.place = reader.place;
    }
    node.origin = true;
    node.inputs.clear();
    node.absorbers.clear();
    node.reader = node.forward_node = -1;
    node.carried_from = slot.node;
    node.carried_origin = origin;
    node.storage = slot.pin;
    if (!intended) ++unintended_;
    slot.node = kept.add(std::move(node));
  });
  previous_ = std::exchange(graph_, std::move(kept));
  nodes_end_.store(graph_.end(), kRelaxed);
}

// Values that still live and that nothing on the way to a loss absorbed, also not what was made of them. That an op has
// read one says nothing: isfinite() does before the program raises its error, and so does the message of that error.
void Tracer::check_loose_ends() {
  const auto at = [&](std::int32_t id) { return static_cast<std::size_t>(id - graph_.first()); };
  std::vector<bool> absorbed(graph_.size());
  for (auto id = graph_.end(); id-- > graph_.first();) {
    const auto counts = [&](const Absorber& a) { return a.requires_grad || !graph_[id].requires_grad; };
    const auto& absorbers = graph_[id].absorbers;
    if (std::any_of(absorbers.begin(), absorbers.end(), counts)) absorbed[at(id)] = true;
    for (const Edge& edge : graph_[id].inputs) {
      if (absorbed[at(id)] && graph_.has(edge.node)) absorbed[at(edge.node)] = true;
    }
  }
  slots_.for_each_living_bad([&](const Slot& slot) {
    if (!graph_.has(slot.node) || absorbed[at(slot.node)]) return;
    const Node& node = graph_[slot.node];
    if (node.step == step_ && !node.intended) hits_.push_back({slot.node, "the end of the run"});
  });
}

void Tracer::finish(bool died) {
  const std::lock_guard lock(intercept::observer_mutex());
  if (died && !step_pending_.load(kRelaxed) && hits_.empty() && roots_.empty()) check_loose_ends();
  if (guessed_optimizer_.load(kRelaxed)) return end_optimizer();
  if (!step_pending_.load(kRelaxed)) end_step();
}

void Tracer::reset() {
  const std::lock_guard lock(intercept::observer_mutex());
  reported_.clear();
  uninspected_.clear();
  dropped_origins_ = dropped_nodes_ = 0;
  forget_values(0);
}

void Tracer::resume_at(std::int64_t step) {
  const std::lock_guard lock(intercept::observer_mutex());
  forget_values(step);
}

bool Tracer::begins_backward() const { return notes().at_root; }
std::int32_t Tracer::last_module() const { return notes().last_module; }

void Tracer::forget_values(std::int64_t step) {
  records_ = 0;
  slots_ = SlotTable();
  graph_ = previous_ = Graph();
  forwards_ = ForwardOps();
  evidence_kept_ = 0;
  hits_.clear();
  roots_.clear();
  leaves_.clear();
  unintended_ = 0;
  step_ = step;
  optimizer_open_ = optimizer_ranges_ = model_entered_ = step_pending_ = backward_done_ = guessed_optimizer_ = false;
  guessed_hits_.clear();
  guessed_write_ = optimizer_called_ = amp_checked_ = false;
  gradients_stale_ = true;
  nodes_end_ = 0;
  batch_size_ = 0;
  batch_void_ = paused_ = false;
  compiled_backward_ = ForwardOp{};
  read_out_ = {};
  step_start_ = optimizer_start_ = model_first_ = made_from_ = made_to_ = 0;
  saw_compiled_ = false;
}

void Tracer::set_names(std::vector<std::string> modules, std::vector<NamedTensor> tensors) {
  TensorNames fresh;
  fresh.assign(std::move(modules), std::move(tensors));
  const std::lock_guard lock(intercept::observer_mutex());
  names_generation_.fetch_add(1);
  watching_.store(fresh.watching(), kRelaxed);
  names_.swap(fresh);  // the old names' tensors are dropped by `fresh`, which outlives the lock
}

}  // namespace firstfault::trace
