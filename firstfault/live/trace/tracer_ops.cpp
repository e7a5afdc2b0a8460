// The tracer at the start of an op: its arguments, its place, what its written arguments held before.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <string_view>

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/variable.h>

#include "firstfault/live/intercept/per_thread.h"
#include "firstfault/live/measure/scan.h"
#include "firstfault/live/trace/tracer_detail.h"

namespace firstfault::trace {
namespace {

using intercept::FailPoint;
using intercept::Frame;
using intercept::Input;
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
    const bool open = around.traits->delegates || around.traits->foreign || around.transparent;
    if (around.is_compute() && !open) return true;
  }
  return false;
}

// autograd's own end in a number, SqrtBackward0, or are known by name.
bool is_custom_node(const Frame& node) {
  const std::string_view name = node.record->name();
  if (name.starts_with("torch::autograd::")) return name.find("CppNode<") != name.npos;
  return !name.empty() && !std::isdigit(static_cast<unsigned char>(name.back()));
}

}  // namespace

ThreadNotes& notes() {
  ThreadNotes& known = intercept::per_thread<ThreadNotes>();
  if (const auto now = intercept::generation(); known.generation != now) {
    known = ThreadNotes{};
    known.generation = now;
  }
  return known;
}

bool in_custom_node() {
  auto& stack = intercept::frames();
  for (int i = stack.depth() - 1; i >= 0; --i) {
    if (stack[i].type != Frame::Type::op) return stack[i].type == Frame::Type::node && is_custom_node(stack[i]);
  }
  return false;
}

// Before the node the engine itself runs no op; after it, it adds gradients up and fits them to shape and dtype.
bool in_hook(const Frame& frame) {
  static constexpr std::string_view engines_own[] = {"add", "sum", "to", "_to_copy", "copy", "clone", "view", "expand"};
  auto& stack = intercept::frames();
  const Frame* outermost = &frame;
  for (int i = stack.depth() - 1; i >= 0; --i) {
    if (stack[i].type == Frame::Type::op) {
      outermost = &stack[i];
      continue;
    }
    if (stack[i].type != Frame::Type::engine) return false;
    const auto op = intercept::base_name(outermost->traits->name);
    const bool own = std::find(std::begin(engines_own), std::end(engines_own), op) != std::end(engines_own);
    return stack[i].sequence < 0 || !own;
  }
  return false;
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
    const bool open = stack[i].traits->composite || stack[i].traits->foreign || stack[i].transparent;
    if (stack[i].is_compute() && !open) return true;
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
  // A node of the program's own whose backward runs a forward: re-entrant checkpointing.
  if (outermost && phase == Phase::backward && c10::GradMode::is_enabled() && in_custom_node()) locate(frame);
  if (outermost && phase != Phase::backward) {
    const bool after_backward = made_from_.load(std::memory_order_relaxed) > made_to_.load(std::memory_order_relaxed);
    if (after_backward) made_to_.store(frame.number, std::memory_order_relaxed);
    if (phase != Phase::optimizer) locate(frame);
    begin_step_if_pending(frame, phase);
    if (backward_done_.load(std::memory_order_relaxed)) notice_optimizer(frame);
    if (!watching_.load(std::memory_order_relaxed)) remember_leaves(frame);
  }
  if (frame.traits->collective) unseen_writes_.store(true, std::memory_order_relaxed);
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
    Input input;
    if (value.has_storage()) {
      // A subclass with __torch_dispatch__: the real ops are nested below.
      if (value.key_set().has(c10::DispatchKey::Python)) frame.transparent = true;
      input.tensor = value;
    } else if (value.layout() == at::kStrided) {
      frame.transparent = true;
      return;
    } else {
      input.tensor = measure::explicit_values(value);
      if (!input.tensor.defined()) return;
      input.sparse = value;
    }
    input.argument = argument;
    input.item = item;
    input.floating = may_hold_bad_values(input.tensor);
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
    } else if (value.isBool() && ((op.numbers >> argument) & 1)) {
      frame.scalars.push_back({argument, true, value.toBool() ? 1.0 : 0.0});
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
      // What an earlier step left there may have been written since by numpy; not where the optimizer goes on.
      const bool fresh = owns_memory(input.tensor) && (optimizer_open_.load(std::memory_order_relaxed) ||
                                                       slot->written >= step_start_.load(std::memory_order_relaxed));
      known = (slot->state & kAnyBad) || (fresh && slot->is_of(input.tensor) && !(slot->state & kPartial));
      unwritten = known && (slot->state & kUnwritten);
      input.before = known ? slot->state : 0;
      input.before_node = known ? slot->node : -1;
    }
  }
  const bool one_of_many = input.item >= 0 && optimizer_open_.load(std::memory_order_relaxed);
  if (op.keep_operand && !overwritten && !one_of_many) {
    if (input.tensor.numel() <= kMaxKeptOperand) input.copy = measure::copy_of(input.tensor);
  }
  input.looked_at = !overwritten;
  if (overwritten || (known && !unwritten)) return;
  const measure::Looked looked = measure::look(input.tensor);
  const std::uint8_t bits = looked.bits;
  const std::lock_guard lock(intercept::observer_mutex());
  if (unwritten) {
    input.before = bits;
    input.before_node = bits ? add_outside(input.tensor, bits, true, frame.number) : -1;
    return;
  }
  Slot& slot = slots_.insert(input.tensor, frame.number);
  slot.written = 0;
  slot.state = bits;
  if (!bits && !covers_storage(input.tensor)) slot.state = kPartial;
  slots_.bounds(slot) = {slot.state == 0 ? frame.number : 0, as_bounds(looked)};
  slot.node = -1;
  if (bits) {
    slot.node = add_outside(input.tensor, bits, false, frame.number);
    const bool intended = graph_.has(slot.node) && graph_[slot.node].intended;
    if (intended) slot.state |= kIntended;
    if (!intended) ++unintended_;
    slots_.pin(slot, input.tensor);
  }
  input.before = slot.state & ~static_cast<unsigned>(kPartial);
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
    place = places_->here(owner_of_parameters(frame), /*with_stack=*/false);
    thread.predictor.learn(key, place);
  }
  if (parameters != 0) read_batch_size(frame);
  frame.place = place;
  auto& stack = intercept::frames();  // an autograd.Function around it was called from there
  for (int i = 0; i < stack.depth(); ++i) {
    const bool custom = stack[i].type == Frame::Type::op && stack[i].traits->kind == intercept::OpKind::other;
    if (custom && stack[i].place < 0) stack[i].place = place;
  }
  // A model's parameter may be read without calling the model.
  const bool entered = model_entered_.load(std::memory_order_relaxed);
  if (parameters != 0 && !entered && owner_of_parameters(frame) >= 0) enter_model(frame);
  const auto module = module_at(place);
  if (module < 0) return;
  thread.last_module = module;
  enter_model(frame);
}

void Tracer::enter_model(const Frame& frame) {
  if (!model_entered_.load(std::memory_order_relaxed)) model_entered_.store(true, std::memory_order_relaxed);
  const bool trains = model_first_.load(std::memory_order_relaxed) == 0 && c10::GradMode::is_enabled() &&
                      !intercept::frames().in_backward();
  if (trains) model_first_.store(frame.number, std::memory_order_relaxed);
}

// An optimizer may write through p.data(), which is no leaf: then the storage tells.
void Tracer::remember_leaves(const Frame& frame) {
  if (!c10::GradMode::is_enabled()) return;
  for (const Input& input : frame.inputs) {
    if (!is_leaf_parameter(input.tensor)) continue;
    const std::lock_guard lock(intercept::observer_mutex());
    leaves_.insert(identity_of(input.tensor));
  }
}

// The observer's mutex is held.
bool Tracer::is_leaf_read(const at::Tensor& tensor) const {
  return is_leaf_parameter(tensor) || (!leaves_.empty() && leaves_.count(identity_of(tensor)));
}

bool Tracer::is_from_before_the_model(const at::Tensor& tensor) {
  const auto first = model_first_.load(std::memory_order_relaxed);
  const auto made_from = made_from_.load(std::memory_order_relaxed);
  if (first == 0) return made_from == 0;
  const auto* storage = tensor.storage().unsafeGetStorageImpl();
  const std::lock_guard lock(intercept::observer_mutex());
  if (names_.watches_storage(storage)) return false;
  const Slot* slot = slots_.find(storage);
  if (!slot || slot->written < made_from) return true;
  return slot->written < first && slot->written >= made_to_.load(std::memory_order_relaxed);
}

}  // namespace firstfault::trace
