// The tracer at the end of an op: which outputs are bad, what the slots of its storages hold now, what it absorbed.
#include <algorithm>
#include <cmath>

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

Bounds united(const Bounds& a, const Bounds& b) { return {std::max(a.most, b.most), std::min(a.least, b.least)}; }

// That their outputs may be bad: they take their exact place while they still can.
void tell_enclosing_ops() {
  auto& stack = intercept::frames();
  for (int i = stack.depth() - 1; i >= 0 && stack[i].type == Frame::Type::op; --i) stack[i].child_bad = true;
}

}  // namespace

const at::Tensor* first_tensor(const Frame& frame, const at::RecordFunction& record) {
  for (const auto& value : intercept::results_of(*frame.traits, record)) {
    if (value.isTensor() && value.toTensor().defined()) return &value.toTensor();
    if (!value.isTensorList()) continue;
    for (const c10::IValue& item : value.toListRef()) return &item.toTensor();
  }
  return nullptr;
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

void Tracer::on_op_end(Frame& frame, const at::RecordFunction& record) {
  intercept::fail_here_if(FailPoint::op_end);
  if (frame.hidden) return;
  if (frame.is_compute() && frame.observed) return end_compute(frame, record);
  const std::lock_guard lock(intercept::observer_mutex());
  if (frame.is_compute()) forget_written(frame, record);
  if (!frame.traits->composite) remember_forward(frame, record);
  if (frame.traits->kind == OpKind::alloc) end_alloc(frame, record);
  if (frame.traits->lift) end_lift(frame, record);
}

// By an op that is not looked at: what was known of the memory that it wrote holds no more.
void Tracer::forget_written(const Frame& frame, const at::RecordFunction& record) {
  const auto forget = [&](const at::Tensor& tensor) {
    Slot* slot = may_hold_bad_values(tensor) ? slots_.find(tensor) : nullptr;
    if (!slot) return;
    SlotTable::unpin(*slot);
    slot->state = 0;
    slot->written = 0;
    slot->node = -1;
    slot->batch = {};
    slots_.bounds(*slot) = {};
  };
  for (const Input& input : frame.inputs) {
    if (input.written) forget(input.tensor);
  }
  if (frame.traits->mutates) return;
  for (const auto& value : intercept::results_of(*frame.traits, record)) {
    if (value.isTensor()) forget(value.toTensor());
    if (!value.isTensorList()) continue;
    for (const c10::IValue& element : value.toListRef()) forget(element.toTensor());
  }
}

// Ops that are not PyTorch's own need not say what they write; and what writes integers may write those of a float.
void Tracer::forget_unmarked(const Frame& frame) {
  for (const Input& input : frame.inputs) {
    const bool unmarked = frame.traits->foreign ? input.floating && !input.written : input.written && !input.floating;
    if (!unmarked || !input.tensor.has_storage()) continue;
    forget_storage(input.tensor);
  }
}

void Tracer::forget_storage(const at::Tensor& tensor) {
  Slot* slot = slots_.find(tensor.storage().unsafeGetStorageImpl());
  if (!slot || slot->state != 0) return;
  slot->state = kPartial;
  slots_.bounds(*slot) = {};
}

void Tracer::end_alloc(const Frame& frame, const at::RecordFunction& record) {
  for (const auto& value : intercept::results_of(*frame.traits, record)) {
    if (!value.isTensor()) continue;
    if (!may_hold_bad_values(value.toTensor())) {  // where a float had been
      if (value.toTensor().defined() && value.toTensor().has_storage()) forget_storage(value.toTensor());
      continue;
    }
    const auto now = records_.load(std::memory_order_relaxed);
    Slot& slot = slots_.insert(value.toTensor(), now);
    SlotTable::unpin(slot);
    slot.state = kUnwritten;
    slot.node = -1;
    slot.written = now;
    slot.batch = {};
    slots_.bounds(slot) = {};
  }
}

// Python's torch.tensor(...) fills memory without an op, then lifts it.
void Tracer::end_lift(const Frame& frame, const at::RecordFunction& record) {
  for (const auto& value : intercept::results_of(*frame.traits, record)) {
    if (!value.isTensor() || !may_hold_bad_values(value.toTensor())) continue;
    Slot* slot = slots_.find(value.toTensor());
    if (!slot || !(slot->state & kUnwritten)) continue;
    slot->state = 0, slot->written = 0;
    slots_.bounds(*slot) = {};
  }
}

Tracer::Outputs Tracer::outputs_of(const Frame& frame, const at::RecordFunction& record) {
  const OpTraits& op = *frame.traits;
  Outputs outputs;
  for (const Input& input : frame.inputs) {
    if (!input.written || !input.floating) continue;
    outputs.push_back(Output{.whole = &input.tensor,
                             .result = static_cast<std::int16_t>(outputs.size()),
                             .item = input.item,
                             .written = true});
    if (!input.sparse.defined()) continue;
    outputs.back().whole = &input.sparse;  // which may have other values by now
    outputs.back().values = measure::explicit_values(input.sparse);
  }
  if (op.mutates) return outputs;
  const auto returned = [&](const at::Tensor& tensor, int index, std::int16_t item) {
    const bool auxiliary = (op.auxiliary >> std::min(index, 31)) & 1;
    const auto result = static_cast<std::int16_t>(index);
    if (may_hold_bad_values(tensor)) {
      outputs.push_back(Output{.whole = &tensor, .result = result, .item = item, .auxiliary = auxiliary});
    } else if (at::Tensor values = measure::explicit_values(tensor); may_hold_bad_values(values)) {
      outputs.push_back(Output{
          .whole = &tensor, .values = std::move(values), .result = result, .item = item, .auxiliary = auxiliary});
    } else {
      count_uninspected(tensor);
    }
  };
  int index = 0;
  for (const auto& value : intercept::results_of(op, record)) {
    if (value.isTensor()) returned(value.toTensor(), index, -1);
    std::int16_t item = 0;
    if (value.isTensorList()) {
      for (const c10::IValue& element : value.toListRef()) returned(element.toTensor(), index, item++);
    }
    ++index;
  }
  return outputs;
}

void Tracer::count_uninspected(const at::Tensor& tensor) {
  if (!tensor.defined() || !(tensor.is_floating_point() || tensor.is_complex() || tensor.is_quantized())) return;
  const bool strided = tensor.layout() == at::kStrided;
  std::string what;
  if (tensor.is_nested()) {
    what = "nested tensor";
  } else if (tensor.is_quantized()) {
    what = std::string("quantized dtype ") + c10::toString(tensor.scalar_type());
  } else if (!strided) {
    what = "layout " + c10::str(tensor.layout());
  } else if (tensor.is_cpu()) {
    return;  // a wrapper: the ops below it are seen
  } else {
    what = "device " + tensor.device().str();
  }
  const std::lock_guard lock(intercept::observer_mutex());
  ++uninspected_[what];
}

// tensor.item(): what the program computes from the number cannot be seen.
void Tracer::note_read_out(const Frame& frame) {
  for (const Input& input : frame.inputs) {
    if (!input.floating || !measure::scan(input.tensor)) continue;
    const std::lock_guard lock(intercept::observer_mutex());
    const Slot* slot = slots_.find(input.tensor);
    if (slot && (slot->state & kAnyBad) && !(slot->state & kIntended)) read_out_ = {step_, slot->node};
  }
}

void Tracer::end_compute(Frame& frame, const at::RecordFunction& record) {
  const OpTraits& op = *frame.traits;
  if (op.reads_out) return note_read_out(frame);
  const bool forward_phase = !intercept::frames().in_backward();
  Outputs outputs = outputs_of(frame, record);
  const bool bad = scan_outputs(frame, outputs) != 0 || frame.child_bad;
  if (bad) tell_enclosing_ops();
  // A bad value's place is always read off the live stack; only what a backward needs later may be a prediction.
  auto exact = intercept::kNowhere;
  if (bad && (forward_phase || in_custom_node() || in_hook(frame))) {
    const auto owner = phase_now() == Phase::optimizer ? -1 : owner_of_parameters(frame);
    exact = places_->here(owner, /*with_stack=*/true);
  }

  const std::lock_guard lock(intercept::observer_mutex());
  ForwardOp* forward = op.composite ? nullptr : remember_forward(frame, record);
  const auto made = settle_all(frame, outputs, exact);
  forget_unmarked(frame);
  if (forward && made >= 0) {
    forward->bad_node = made;
    forward->bad_step = step_;
  }
  if (op.amp_check) amp_checked_ = true;
  if (op.amp_update && amp_checked_ && !optimizer_called_) end_step();  // a step that GradScaler skipped
  if (unintended_ > 0 && !op.composite && forward_phase) note_absorbed(frame, outputs);
}

// Gives the node of the first bad output that is no auxiliary one, -1: none.
std::int32_t Tracer::settle_all(Frame& frame, Outputs& outputs, intercept::PlaceId exact) {
  const BatchDims dims = batch_dims(frame);
  std::int32_t made = -1;
  for (Output& output : outputs) {
    if (!dims.empty()) output.batch = infer_layout(frame, output.tensor(), dims, batch_size_.load());
    const auto before = graph_.end();
    settle(frame, output, exact);
    if (graph_.end() > before && made < 0 && !output.auxiliary) made = graph_.end() - 1;
  }
  return made;
}

// An op is judged by its own inputs and outputs; a composite only hands on what its child ops made.
void Tracer::settle(Frame& frame, Output& output, intercept::PlaceId exact) {
  const OpTraits& op = *frame.traits;
  const auto* storage = output.tensor().storage().unsafeGetStorageImpl();
  const Slot* slot = slots_.find(storage);
  const bool by_child = slot && slot->written >= frame.number && !(slot->state & kUnwritten);
  const std::uint8_t known = slot ? slot->state & kAnyBad : 0;
  if (by_child && op.composite) {
    output.bits = known;
    return;
  }
  // An op that is not PyTorch's own may have written more than its child ops did.
  if (by_child && op.foreign && output.bits && !(output.bits & ~known)) return;
  if (by_child && op.delegates && !output.scanned) {
    output.bits = known;
    if (!known) return;
  } else if (!output.scanned) {
    const bool is_argument = !output.written && slot && !(slot->state & kUnwritten) && reads_storage(frame, storage);
    if (is_argument) {
      output.bits = known;
      return;
    }
    output.bits = measure::scan(output.tensor());
    // broadcast_tensors, contiguous: its own argument, which nobody wrote.
    if (!output.bits && op.composite && !by_child && !output.written && reads_storage(frame, storage)) return;
  }
  write_slot(frame, output, exact);
}

void Tracer::write_slot(Frame& frame, const Output& output, intercept::PlaceId exact) {
  const at::Tensor& tensor = output.tensor();
  if (!output.bits) {
    const Slot* old = slots_.find(tensor);
    const bool rest_known = old && old->is_of(tensor) && !(old->state & kPartial) && old->written > 0 &&
                            old->written >= step_start_.load(std::memory_order_relaxed);
    const KnownBounds old_bounds = rest_known ? slots_.bounds(*old) : KnownBounds{};
    const bool old_known = old_bounds.at > 0 && old_bounds.at >= old->written;
    Slot& slot = slots_.insert(tensor, frame.number);
    slot.written = slot.touched = frame.number;
    const bool partial = output.written && !covers_storage(tensor);
    slots_.bounds(slot) = {};
    if (output.bounds.known() && !frame.traits->constant && (!partial || old_known)) {
      slots_.bounds(slot) = {frame.number, partial ? united(output.bounds, old_bounds.bounds) : output.bounds};
    }
    if (partial && (slot.state & (static_cast<unsigned>(kAnyBad) | static_cast<unsigned>(kUnwritten))))
      return;  // the rest of the storage keeps its state
    if (slot.state & kAnyBad) SlotTable::unpin(slot);
    slot.state = partial && !rest_known ? kPartial : 0;
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

// Bad operands that left no trace in the outputs.
void Tracer::note_absorbed(const Frame& frame, const Outputs& outputs) {
  const auto is_bad = [](const Output& output) { return output.bits != 0; };
  if (outputs.empty() || std::any_of(outputs.begin(), outputs.end(), is_bad)) return;
  const bool requires_grad = std::any_of(outputs.begin(), outputs.end(), [](const Output& output) {
    return !output.written && output.whole->requires_grad();
  });
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
  const at::Tensor* tensor = first_tensor(frame, record);
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
  fresh.place = place_of(frame);
  fresh.module = module_at(fresh.place);
  fresh.after = notes().last_module;
  if (stack.in_backward()) {  // made by a backward: belongs to the op whose backward that is
    for (int i = stack.depth() - 1; i >= 0; --i) {
      if (stack[i].type != Frame::Type::node) continue;
      if (const ForwardOp* around = forwards_.find(stack[i].sequence, stack[i].forward_thread)) {
        if (fresh.module < 0) fresh.module = around->module;
        if (fresh.place < 0) fresh.place = around->place;
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
