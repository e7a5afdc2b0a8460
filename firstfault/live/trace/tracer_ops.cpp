// The tracer at the start and the end of one op: inputs, places, scans, slots.
#include <algorithm>
#include <cmath>
#include <cstring>

#include <ATen/EmptyTensor.h>
#include <torch/csrc/autograd/functions/tensor.h>
#include <torch/csrc/autograd/variable.h>

#include "firstfault/live/measure/scan.h"
#include "firstfault/live/trace/tracer_detail.h"

namespace firstfault::trace {
namespace {

using intercept::FailPoint;
using intercept::Frame;
using intercept::Input;
using intercept::OpKind;
using intercept::OpTraits;

constexpr std::int64_t kMaxKeptOperand = 1 << 20;  // elements of an in-place operand that are copied as evidence

bool is_outermost_compute(const Frame& frame) {
  auto& stack = intercept::frames();
  for (int i = 0; i < stack.depth(); ++i) {
    if (&stack[i] == &frame) return true;
    if (stack[i].is_compute()) return false;
  }
  return true;
}

// A kernel's child ops are its own affair, but where it only hands on what they made.
bool is_hidden() {
  auto& stack = intercept::frames();
  for (int i = stack.depth() - 2; i >= 0; --i) {
    const Frame& around = stack[i];
    if (around.type != Frame::Type::op) return false;
    if (around.hidden) return true;
    if (around.is_compute() && !around.traits->delegates && !around.transparent) return true;
  }
  return false;
}

// Without the dispatcher, which would show the copy to the program's own dispatch modes. Undefined where it is no
// block.
at::Tensor copy_of(const at::Tensor& tensor) {
  const bool one_block = measure::can_scan(tensor) && tensor.is_non_overlapping_and_dense() && !tensor.is_neg() &&
                         !tensor.is_conj() && tensor.numel() <= kMaxKeptOperand;
  if (!one_block) return {};
  at::Tensor copy = at::detail::empty_strided_cpu(tensor.sizes(), tensor.strides(), tensor.scalar_type());
  std::memcpy(copy.mutable_data_ptr(), tensor.const_data_ptr(), tensor.nbytes());
  return copy;
}

// The node whose backward this in-place op on a view will run in: CopySlices keeps it on the base tensor.
torch::autograd::Node* node_behind_view(const at::Tensor& tensor) {
  namespace impl = torch::autograd::impl;
  const auto* view = impl::get_view_autograd_meta(tensor);
  if (!view || !view->has_bw_view()) return nullptr;
  const auto* base = impl::get_autograd_meta(view->get_backward_view().base_);
  if (!base || !base->grad_fn_) return nullptr;
  const auto* slices = dynamic_cast<torch::autograd::CopySlices*>(base->grad_fn_.get());
  return slices ? slices->fn.get() : nullptr;
}

// Read directly: Tensor::grad_fn() on a view may make a node and take a sequence number.
torch::autograd::Node* node_of(const at::Tensor& tensor, bool mutates) {
  const auto* meta = torch::autograd::impl::get_autograd_meta(tensor);
  if (!meta || !meta->grad_fn_) return nullptr;
  if (mutates) {
    if (auto* node = node_behind_view(tensor)) return node;
  }
  return meta->grad_fn_.get();
}

// fill_(tensor) and full(nan) do not.
bool gives_finite_numbers(const Frame& frame) {
  const auto reads_tensor = [&](const Input& input) { return frame.traits->arguments[input.argument] == "value"; };
  const auto is_finite = [](const auto& scalar) { return std::isfinite(scalar.value); };
  return std::none_of(frame.inputs.begin(), frame.inputs.end(), reads_tensor) &&
         std::all_of(frame.scalars.begin(), frame.scalars.end(), is_finite);
}

const at::Tensor* first_tensor(c10::ArrayRef<c10::IValue> values) {
  for (const auto& value : values) {
    if (value.isTensor() && value.toTensor().defined()) return &value.toTensor();
    if (!value.isTensorList()) continue;
    for (const c10::IValue& item : value.toListRef()) return &item.toTensor();
  }
  return nullptr;
}

}  // namespace

ThreadNotes& notes() {
  thread_local ThreadNotes state;
  if (const auto now = intercept::generation(); state.generation != now) {
    state = ThreadNotes{};
    state.generation = now;
  }
  return state;
}

bool reads_storage(const Frame& frame, const c10::StorageImpl* storage) {
  for (const Input& input : frame.inputs) {
    if (input.written && ((frame.traits->out >> input.argument) & 1)) continue;
    if (input.tensor.has_storage() && input.tensor.storage().unsafeGetStorageImpl() == storage) return true;
  }
  return false;
}

bool is_nested() {
  auto& stack = intercept::frames();
  for (int i = stack.depth() - 1; i >= 0; --i) {
    if (stack[i].type != Frame::Type::op) return false;
    if (stack[i].is_compute() && !stack[i].traits->composite && !stack[i].transparent) return true;
  }
  return false;
}

bool is_internal(const c10::StorageImpl* storage) {
  auto& stack = intercept::frames();
  for (int i = stack.depth() - 1; i >= 0; --i) {
    const Frame& frame = stack[i];
    if (frame.type != Frame::Type::op) return false;
    if (frame.is_compute() && !frame.traits->composite && !frame.transparent && !reads_storage(frame, storage)) {
      return true;
    }
  }
  return false;
}

bool is_leaf_parameter(const at::Tensor& tensor) {
  const auto* meta = torch::autograd::impl::get_autograd_meta(tensor);
  return meta && meta->requires_grad_ && !meta->grad_fn_;
}

bool is_parameter_view(const at::Tensor& tensor) {
  if (is_leaf_parameter(tensor)) return true;
  const auto* view = torch::autograd::impl::get_view_autograd_meta(tensor);
  return view && view->has_bw_view() && is_leaf_parameter(view->get_backward_view().base_);
}

void Tracer::on_op_start(Frame& frame, const at::RecordFunction& record) {
  intercept::fail_here_if(FailPoint::op_start);
  frame.number = records_.fetch_add(1, std::memory_order_relaxed) + 1;
  auto& stack = intercept::frames();
  if (stack.depth() == 1) ++notes().top_ops;
  if (!frame.is_compute()) return;
  frame.hidden = is_hidden();
  if (frame.hidden) return;
  const Phase phase = phase_now();
  frame.observed = looks_at(phase);
  frame.first_node = nodes_end_.load(std::memory_order_relaxed);
  read_inputs(frame, record);
  const bool outermost = is_outermost_compute(frame);
  if (outermost && phase != Phase::backward) {
    if (phase != Phase::optimizer) locate(frame);
    begin_step_if_pending(frame, phase);
    if (backward_done_.load(std::memory_order_relaxed)) notice_optimizer(frame);
  }
  if (!frame.observed) return;
  for (Input& input : frame.inputs) {
    if (input.written && input.floating) look_before(frame, input);
  }
}

void Tracer::read_inputs(Frame& frame, const at::RecordFunction& record) {
  const OpTraits& op = *frame.traits;
  std::int16_t argument = -1;
  const auto tensor = [&](const at::Tensor& value, std::int16_t item) {
    if (!value.defined()) return;
    if (value.layout() == at::kStrided && !value.has_storage()) frame.transparent = true;
    if (!value.has_storage()) return;
    Input input;
    input.tensor = value;
    input.argument = argument;
    input.item = item;
    input.floating = may_hold_bad_values(value);
    input.written = op.writes(argument);
    frame.inputs.push_back(std::move(input));
  };
  for (const auto& value : intercept::arguments_of(op, record)) {
    if (++argument >= 64) break;
    if (value.isTensor()) {
      tensor(value.toTensor(), -1);
    } else if (value.isDouble()) {
      frame.scalars.push_back({argument, false, value.toDouble()});
    } else if (value.isInt()) {
      frame.scalars.push_back({argument, true, static_cast<double>(value.toInt())});
    } else if (value.isList()) {
      std::int16_t item = 0;
      for (const c10::IValue& element : value.toListRef()) {
        if (element.isTensor()) tensor(element.toTensor(), item);
        if (element.isDouble()) frame.scalars.push_back({argument, false, element.toDouble()});
        if (element.isInt()) frame.scalars.push_back({argument, true, static_cast<double>(element.toInt())});
        ++item;
      }
    }
  }
}

void Tracer::look_before(Frame& frame, Input& input) {
  const OpTraits& op = *frame.traits;
  const bool overwritten = op.overwrites(input.argument);
  bool known = false, unwritten = false;
  {
    const std::lock_guard lock(intercept::observer_mutex());
    if (Slot* slot = slots_.find(input.tensor)) {
      slot->touched = frame.number;
      known = (slot->state & kAnyBad) || slot->is_of(input.tensor);
      unwritten = known && (slot->state & kUnwritten);
      input.before = known ? slot->state : 0;
      input.before_node = known ? slot->node : -1;
    }
  }
  if (op.keep_operand && !overwritten) input.copy = copy_of(input.tensor);
  if (overwritten || (known && !unwritten)) return;
  const std::uint8_t bits = measure::scan(input.tensor);
  const std::lock_guard lock(intercept::observer_mutex());
  if (unwritten) {
    input.before = bits;
    input.before_node = bits ? add_outside(input.tensor, bits, true) : -1;
    return;
  }
  Slot& slot = slots_.insert(input.tensor, frame.number);
  slot.written = 0;
  slot.state = bits;
  slot.node = -1;
  if (bits) {
    slot.node = add_outside(input.tensor, bits, false);
    const bool intended = graph_.has(slot.node) && graph_[slot.node].intended;
    if (intended) slot.state |= kIntended;
    if (!intended) ++unintended_;
    slots_.pin(slot, input.tensor);
  }
  input.before = slot.state;
  input.before_node = slot.node;
}

std::int32_t Tracer::owner_of_parameters(const Frame& frame) {
  const std::lock_guard lock(intercept::observer_mutex());
  for (const Input& input : frame.inputs) {
    const auto module = names_.module_of_parameter(input.tensor.unsafeGetTensorImpl());
    if (module >= 0) return module;
  }
  return -1;
}

void Tracer::locate(Frame& frame) {
  ThreadNotes& thread = notes();
  if (const auto now = names_generation_.load(std::memory_order_relaxed); thread.names_generation != now) {
    thread.names_generation = now;
    thread.predictor.clear();
    thread.last_module = -1;
  }
  std::uintptr_t parameters = 0;
  for (const Input& input : frame.inputs) {
    if (is_leaf_parameter(input.tensor)) {
      parameters = parameters * 31 + reinterpret_cast<std::uintptr_t>(input.tensor.unsafeGetTensorImpl());
    }
  }
  const intercept::PlacePredictor::Key key{frame.traits, reinterpret_cast<const void*>(parameters)};
  intercept::PlaceId place = thread.predictor.predict(key);
  if (place == intercept::PlacePredictor::kMustWalk) {
    place = places_->here(owner_of_parameters(frame));
    thread.predictor.learn(key, place);
  }
  if (parameters != 0) read_batch_size(frame);
  frame.place = place;
  frame.has_place = true;
  const auto module = places_->module_of(place);
  if (module < 0) return;
  thread.last_module = module;
  if (!model_entered_.load(std::memory_order_relaxed)) model_entered_.store(true, std::memory_order_relaxed);
}

void Tracer::on_op_end(Frame& frame, const at::RecordFunction& record) {
  intercept::fail_here_if(FailPoint::op_end);
  if (frame.hidden) return;
  if (frame.is_compute() && frame.observed) return end_compute(frame, record);
  const std::lock_guard lock(intercept::observer_mutex());
  if (frame.is_compute()) forget_written(frame);
  if (!frame.traits->composite) remember_forward(frame, record);
  if (frame.traits->kind == OpKind::alloc) end_alloc(frame, record);
  if (frame.traits->lift) end_lift(frame, record);
}

// By an op that is not looked at: what was known of its written arguments holds no more.
void Tracer::forget_written(Frame& frame) {
  for (const Input& input : frame.inputs) {
    Slot* slot = input.written && input.floating ? slots_.find(input.tensor) : nullptr;
    if (!slot) continue;
    SlotTable::unpin(*slot);
    slot->state = 0;
    slot->node = -1;
    slot->batch = {};
  }
}

void Tracer::end_alloc(const Frame& frame, const at::RecordFunction& record) {
  for (const auto& value : intercept::results_of(*frame.traits, record)) {
    if (!value.isTensor() || !may_hold_bad_values(value.toTensor())) continue;
    const auto now = records_.load(std::memory_order_relaxed);
    Slot& slot = slots_.insert(value.toTensor(), now);
    SlotTable::unpin(slot);
    slot.state = kUnwritten;
    slot.node = -1;
    slot.written = now;
    slot.batch = {};
  }
}

// Python's torch.tensor(...) fills memory without an op, then lifts it.
void Tracer::end_lift(const Frame& frame, const at::RecordFunction& record) {
  for (const auto& value : intercept::results_of(*frame.traits, record)) {
    if (!value.isTensor() || !may_hold_bad_values(value.toTensor())) continue;
    Slot* slot = slots_.find(value.toTensor());
    if (slot && (slot->state & kUnwritten)) slot->state = 0, slot->written = 0;
  }
}

void Tracer::end_compute(Frame& frame, const at::RecordFunction& record) {
  const OpTraits& op = *frame.traits;
  c10::SmallVector<Output, 4> outputs;
  bool requires_grad = false;
  for (const Input& input : frame.inputs) {
    if (input.written && input.floating) outputs.push_back({&input.tensor, input.item, true});
  }
  const auto returned = [&](const at::Tensor& tensor, int index, std::int16_t item) {
    if (!may_hold_bad_values(tensor)) {
      if (tensor.defined() && tensor.is_floating_point()) {
        const bool layout = tensor.layout() != at::kStrided;
        const std::string what = layout ? "layout " + c10::str(tensor.layout()) : "device " + tensor.device().str();
        const std::lock_guard lock(intercept::observer_mutex());
        if (layout || !tensor.is_cpu()) ++uninspected_[what];
      }
      return;
    }
    requires_grad |= tensor.requires_grad();
    outputs.push_back({&tensor, item, false, static_cast<bool>((op.auxiliary >> std::min(index, 31)) & 1)});
  };
  if (!op.mutates) {
    int index = 0;
    for (const auto& value : intercept::results_of(op, record)) {
      if (value.isTensor()) returned(value.toTensor(), index, -1);
      std::int16_t item = 0;
      if (value.isTensorList()) {
        for (const c10::IValue& element : value.toListRef()) returned(element.toTensor(), index, item++);
      }
      ++index;
    }
  }

  // What is surely scanned is scanned before the lock: other threads go on meanwhile.
  std::uint8_t bad = 0;
  if (op.constant && gives_finite_numbers(frame)) {
    for (Output& output : outputs) output.scanned = true;
  } else if (!op.delegates) {
    for (Output& output : outputs) {
      if (!output.written && reads_storage(frame, output.tensor->storage().unsafeGetStorageImpl())) continue;
      intercept::fail_here_if(FailPoint::measure);
      output.bits = measure::scan(*output.tensor);
      output.scanned = true;
      bad |= output.bits;
    }
  }
  // A bad value's place is always read off the live stack; only what a backward needs later may be a prediction.
  auto exact = intercept::kNowhere;
  if (bad && !intercept::frames().in_backward()) exact = places_->here(owner_of_parameters(frame));

  const std::lock_guard lock(intercept::observer_mutex());
  ForwardOp* forward = op.composite ? nullptr : remember_forward(frame, record);
  const BatchDims dims = batch_dims(frame);
  std::int32_t made = -1;
  bad = 0;
  for (Output& output : outputs) {
    if (!dims.empty()) output.batch = infer_layout(frame, *output.tensor, dims, batch_size_.load());
    const auto before = graph_.end();
    settle(frame, output, exact);
    bad |= output.bits;
    if (graph_.end() > before && made < 0 && !output.auxiliary) made = graph_.end() - 1;
  }
  if (forward && made >= 0) {
    forward->bad_node = made;
    forward->bad_step = step_;
  }
  if (op.amp_check) amp_checked_ = true;
  if (op.amp_update && !optimizer_called_) end_step();
  const bool finite = !bad && !outputs.empty();
  if (finite && unintended_ > 0 && !op.composite && !intercept::frames().in_backward()) {
    note_absorbed(frame, requires_grad);
  }
}

// An op is judged by its own inputs and outputs; a composite only hands on what its child ops made.
void Tracer::settle(Frame& frame, Output& output, intercept::PlaceId exact) {
  const OpTraits& op = *frame.traits;
  const auto* storage = output.tensor->storage().unsafeGetStorageImpl();
  const Slot* slot = slots_.find(storage);
  const bool by_child = slot && slot->written >= frame.number && !(slot->state & kUnwritten);
  const std::uint8_t known = slot ? slot->state & kAnyBad : 0;
  if (by_child && op.composite) {
    output.bits = known;
    return;
  }
  if (by_child && op.delegates && !output.scanned) {
    output.bits = known;
    if (!known) return;
  } else if (!output.scanned) {
    const bool is_argument = !output.written && slot && !(slot->state & kUnwritten) && reads_storage(frame, storage);
    if (is_argument) {
      output.bits = known;
      return;
    }
    output.bits = measure::scan(*output.tensor);
  }
  write_slot(frame, output, exact);
}

void Tracer::write_slot(Frame& frame, const Output& output, intercept::PlaceId exact) {
  const at::Tensor& tensor = *output.tensor;
  if (!output.bits) {
    Slot& slot = slots_.insert(tensor, frame.number);
    slot.written = slot.touched = frame.number;
    const auto written_bytes = static_cast<std::size_t>(tensor.numel()) * tensor.itemsize();
    const bool partial = output.written && written_bytes < tensor.storage().nbytes();
    if (partial && (slot.state & (static_cast<unsigned>(kAnyBad) | static_cast<unsigned>(kUnwritten))))
      return;  // the rest of the storage keeps its state
    if (slot.state & kAnyBad) SlotTable::unpin(slot);
    slot.state = 0;
    slot.node = -1;
    slot.batch = output.batch;
    return;
  }
  const auto node = make_node(frame, output, exact);
  Slot& slot = slots_.insert(tensor, frame.number);
  slot.node = node;
  slot.state = output.bits;
  if (graph_.has(node) && graph_[node].intended) slot.state |= kIntended;
  slot.written = slot.touched = frame.number;
  slot.batch = output.batch;
  slots_.pin(slot, tensor);
}

void Tracer::note_absorbed(Frame& frame, bool requires_grad) {
  for (const Input& input : frame.inputs) {
    if (!input.floating) continue;
    std::uint8_t state = input.before;
    std::int32_t node = input.before_node;
    if (!input.written) {
      const Slot* slot = slots_.find(input.tensor);
      if (!slot) continue;
      state = slot->state;
      node = slot->node;
    }
    if (!(state & kAnyBad) || !graph_.has(node)) continue;
    if (!input.written && !measure::scan(input.tensor)) continue;  // a clean slice of a bad storage
    auto& absorbers = graph_[node].absorbers;
    if (absorbers.size() < Graph::kMaxAbsorbers) {
      absorbers.push_back({frame.traits, frame.traits->selects, requires_grad});
    }
  }
}

ForwardOp* Tracer::remember_forward(Frame& frame, const at::RecordFunction& record) {
  const at::Tensor* tensor = first_tensor(intercept::results_of(*frame.traits, record));
  if (!tensor) return nullptr;
  const auto* node = node_of(*tensor, frame.traits->mutates);
  if (!node) return nullptr;
  const auto sequence = node->sequence_nr();
  if (sequence == UINT64_MAX) return nullptr;
  const auto thread = record.threadId();
  ForwardOp& entry = forwards_.slot(static_cast<std::int64_t>(sequence), thread);
  const bool same = entry.sequence == static_cast<std::int64_t>(sequence) && entry.thread == thread;
  if (same && entry.op && entry.op->kind == OpKind::compute && frame.traits->kind != OpKind::compute) return nullptr;

  ForwardOp fresh;
  fresh.sequence = static_cast<std::int64_t>(sequence);
  fresh.thread = thread;
  fresh.op = frame.traits;
  auto& stack = intercept::frames();
  fresh.place = frame.place;
  for (int i = stack.depth() - 1; i >= 0 && fresh.place < 0; --i) fresh.place = stack[i].place;
  fresh.module = fresh.place >= 0 ? places_->module_of(fresh.place) : -1;
  fresh.after = notes().last_module;
  if (stack.in_backward()) {  // made by a backward: belongs to the op whose backward that is
    for (int i = stack.depth() - 1; i >= 0; --i) {
      if (stack[i].type != Frame::Type::node) continue;
      if (const ForwardOp* around = forwards_.find(stack[i].sequence, stack[i].forward_thread)) {
        fresh.module = around->module;
        fresh.place = around->place;
      }
      fresh.name = forwards_.intern(node_name(stack[i].record->name()));
      break;
    }
  }
  entry = fresh;
  if (frame.traits->kind == OpKind::view && unintended_ > 0 &&
      may_hold_bad_values(*tensor)) {  // a loss may be a view of what an op made
    const Slot* slot = slots_.find(*tensor);
    if (slot && (slot->state & kAnyBad) && graph_.has(slot->node) && measure::scan(*tensor)) {
      entry.bad_node = slot->node;
      entry.bad_step = step_;
    }
  }
  return &entry;
}

}  // namespace firstfault::trace
