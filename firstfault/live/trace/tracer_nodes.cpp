// The tracer when an op gave a bad value: which operands were bad, is it an origin, what is it called.
#include <algorithm>
#include <cmath>
#include <cstring>

#include <torch/csrc/autograd/function.h>

#include "firstfault/live/measure/scan.h"
#include "firstfault/live/trace/evidence/collect.h"
#include "firstfault/live/trace/judge.h"
#include "firstfault/live/trace/tracer_detail.h"

namespace firstfault::trace {
namespace {

using intercept::Frame;
using intercept::Input;
using intercept::OpTraits;

constexpr std::size_t kMaxEvidence = 256;  // per step; the first origins count

// A number in the program's source that the dispatcher made a tensor of: x * float("nan").
bool is_number(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl()->is_wrapped_number(); }

std::optional<double> nonfinite_scalar(const Frame& frame) {
  for (const Input& input : frame.inputs) {
    if (!is_number(input.tensor) || !measure::can_scan(input.tensor)) continue;
    const double value = measure::value_at(input.tensor, 0);
    if (!std::isfinite(value)) return value;
  }
  for (const auto& scalar : frame.scalars) {
    if (!std::isfinite(scalar.value)) return scalar.value;
  }
  return std::nullopt;
}

}  // namespace

intercept::PlaceId place_of(const Frame& frame) {
  auto& stack = intercept::frames();
  auto place = frame.place;
  for (int i = stack.depth() - 1; i >= 0 && place < 0; --i) place = stack[i].place;
  return place;
}

std::string node_name(const char* record_name) {
  constexpr char prefix[] = "torch::autograd::";
  const bool qualified = std::strncmp(record_name, prefix, sizeof(prefix) - 1) == 0;
  return qualified ? record_name + sizeof(prefix) - 1 : record_name;
}

Tracer::Context Tracer::context(const Frame& frame) const {
  Context context{nullptr, frame.traits, frame.traits};
  auto& stack = intercept::frames();
  int first = 0;
  for (int i = stack.depth() - 1; i >= 0; --i) {
    if (stack[i].type == Frame::Type::op) continue;
    context.around = &stack[i];
    first = i + 1;
    break;
  }
  bool outer_found = false;
  for (int i = first; i < stack.depth(); ++i) {
    const Frame& around = stack[i];
    if (around.traits->kind == intercept::OpKind::other) continue;
    if (!outer_found) {
      context.outer = around.traits;
      outer_found = true;
    }
    if (!around.traits->composite && !around.traits->foreign && !around.transparent) {
      context.judged = around.traits;
      break;
    }
  }
  if (context.around && in_hook(frame)) context.around = nullptr;
  // A constant that the op around it writes for some of its operands: logdet's NaN.
  if (frame.inputs.empty() && context.judged == frame.traits) context.judged = context.outer;
  return context;
}

std::vector<Edge> Tracer::bad_inputs(Frame& frame, std::int32_t item) {
  std::vector<Edge> edges;
  const OpTraits& op = *frame.traits;
  for (const Input& input : frame.inputs) {
    if (!input.floating || (item >= 0 && input.item >= 0 && input.item != item)) continue;
    if (input.written) {
      if (op.overwrites(input.argument) || !(input.before & kAnyBad)) continue;
      edges.push_back({input.before_node, static_cast<std::uint8_t>(input.before & kAnyBad),
                       static_cast<bool>(input.before & kIntended), input.argument, input.item});
      continue;
    }
    const std::uint8_t bits = measure::scan(input.tensor);
    if (!bits || ((bits & kNaN) && is_number(input.tensor))) continue;
    Edge edge{-1, bits, false, input.argument, input.item};
    Slot* slot = slots_.find(input.tensor);
    if (slot && (slot->state & kAnyBad) && graph_.has(slot->node)) {
      edge.node = slot->node;
      edge.intended = slot->state & kIntended;
    } else if (!is_internal(input.tensor.storage().unsafeGetStorageImpl())) {
      const bool unwritten = slot && (slot->state & kUnwritten) && slot->is_of(input.tensor);
      edge.node = add_outside(input.tensor, bits, unwritten, frame.number);
      const bool mask = op.takes_mask && (op.passes_inf || input.argument == 0);
      if (graph_.has(edge.node)) {
        Node& node = graph_[edge.node];
        if (!unwritten && bits == kNegInf && mask) node.intended = true;
        edge.intended = node.intended;
      }
      Slot& fresh = slots_.insert(input.tensor, frame.number);
      fresh.node = edge.node;
      fresh.state = static_cast<std::uint8_t>(bits | (edge.intended ? kIntended : 0));
      fresh.written = frame.number;
      slots_.pin(fresh, input.tensor);
      if (!edge.intended) ++unintended_;
    }
    if (edge.intended && graph_.has(edge.node) && is_taken_for_data(frame, input))
      take_for_data(edge, input, frame.number);
    edges.push_back(edge);
  }
  return edges;
}

// A layer or a loss that computes with the tensor, which carries no gradient: nobody means an Inf there.
bool Tracer::is_taken_for_data(const Frame& frame, const Input& input) const {
  const OpTraits& op = *frame.traits;
  const bool mask = op.passes_inf || op.takes_mask || op.selects || (op.mask_first && input.argument == 0);
  if (mask || input.tensor.requires_grad()) return false;
  if (intercept::frames().in_backward() || input.tensor.dim() == 0) return false;
  return std::any_of(frame.inputs.begin(), frame.inputs.end(),
                     [](const Input& other) { return other.tensor.requires_grad(); });
}

void Tracer::take_for_data(Edge& edge, const Input& input, std::uint64_t number) {
  edge.node = add_outside(input.tensor, edge.bits, false, number);
  edge.intended = false;
  if (graph_.has(edge.node)) graph_[edge.node].intended = false;
  Slot& slot = slots_.insert(input.tensor, number);
  slot.node = edge.node;
  slot.state = edge.bits;
  slots_.pin(slot, input.tensor);
  ++unintended_;
}

std::int32_t Tracer::add_node(Node node) {
  const auto id = graph_.add(std::move(node));
  nodes_end_.store(graph_.end(), std::memory_order_relaxed);
  return id;
}

// The region of torch.compile that made a tensor: the one around this op, the one of the tensor's own node, or, for a
// gradient, the one that ran backward in this step. nullptr: none. PyNode::name() would take the interpreter's lock.
const ForwardOp* Tracer::compiled_region(const at::Tensor& tensor) {
  const auto named = [&](const ForwardOp* forward) {
    const bool custom = forward && forward->op == &intercept::custom_function_traits() && forward->name >= 0;
    return custom && forwards_.name(forward->name) == kCompiledFunction ? forward : nullptr;
  };
  auto& stack = intercept::frames();
  for (int i = stack.depth() - 1; i >= 0; --i) {
    const bool custom = stack[i].type == Frame::Type::op && stack[i].traits->kind == intercept::OpKind::other;
    if (custom && stack[i].record->name() == kCompiledFunction) {
      compiled_forward_ = ForwardOp{};
      compiled_forward_.place = stack[i].place;
      compiled_forward_.module = module_at(stack[i].place);
      return &compiled_forward_;
    }
    if (stack[i].type != Frame::Type::node) continue;
    if (const auto* region = named(forwards_.find(stack[i].sequence, stack[i].forward_thread))) return region;
  }
  if (auto* node = node_of(tensor, false)) {
    const auto sequence = static_cast<std::int64_t>(node->sequence_nr());
    if (const auto* region = named(forwards_.find(sequence, node->thread_id()))) return region;
  }
  if (compiled_backward_.bad_step != step_) return nullptr;
  return names_.owner_of(identity_of(tensor)).role == TensorRole::gradient ? &compiled_backward_ : nullptr;
}

std::int32_t Tracer::add_outside(const at::Tensor& tensor, std::uint8_t bits, bool unwritten, std::uint64_t number) {
  if (graph_.full()) {
    ++dropped_nodes_;
    ++unintended_;
    return -1;
  }
  Node node;
  node.kind = unwritten ? Node::Kind::unwritten : Node::Kind::outside;
  node.bits = bits;
  node.step = step_;
  node.number = number;
  node.phase = phase_now();
  node.origin = true;
  node.is_number = is_number(tensor);
  node.storage = StoragePin(tensor.storage());
  node.dtype = tensor.scalar_type();
  node.shape = tensor.sizes().vec();
  if (const ForwardOp* region = compiled_region(tensor)) {
    node.compiled = true;
    node.module = region->module;
    node.place = region->place;
    if (region == &compiled_backward_) node.phase = Phase::backward;
    if (node.phase == Phase::data) node.phase = Phase::forward;
  }
  // A single Inf is a constant that somebody wrote down; in float16 it may have been a finite number.
  const bool too_large = tensor.scalar_type() == at::kHalf && (bits & kPosInf);
  node.intended = !unwritten && !node.compiled && !(bits & kNaN) && tensor.numel() == 1 && !too_large;
  if (!node.intended && evidence_kept_ < kMaxEvidence) {
    ++evidence_kept_;
    // A parameter is described as it is, not as the view of it that the op read.
    const Owner owner = names_.owner_of(node.storage.living());
    const at::Tensor* whole = !owner.named                         ? &tensor
                              : owner.role == TensorRole::gradient ? &owner.named->tensor.grad()
                                                                   : &owner.named->tensor;
    if (!measure::can_scan(*whole)) whole = &tensor;  // a sparse one: its values
    auto found = std::make_shared<OriginEvidence>(evidence::describe_tensor(*whole));
    if (const auto dim = batch_dim_of(tensor, /*floating=*/true)) {
      node.sample = sample_at(tensor, layout_of(tensor, *dim, batch_size_.load()), found->index);
    }
    node.evidence = std::move(found);
  }
  return add_node(std::move(node));
}

void Tracer::name_backward(Node& node, Frame& around) {
  node.phase = Phase::backward;
  node.around = around.sequence;
  std::string name = around.record->name();
  if (around.type == Frame::Type::engine) {
    const auto colon = name.find(": ");
    if (colon != std::string::npos) name = name.substr(colon + 2);
  }
  node.backward_node = node_name(name.c_str());
  const ForwardOp* forward = forwards_.find(around.sequence, around.forward_thread);
  if (!forward) return;
  const bool custom = forward->op == &intercept::custom_function_traits();
  node.forward_op = custom && forward->name >= 0 ? forwards_.name(forward->name) : forward->op->name;
  node.module = forward->module;
  node.place = forward->place;
  node.after = forward->after;
  const bool bad = forward->bad_step == step_ && graph_.has(forward->bad_node);
  if (bad && !graph_[forward->bad_node].intended) node.forward_node = forward->bad_node;
}

std::int32_t Tracer::make_node(Frame& frame, const Output& output, intercept::PlaceId exact) {
  if (graph_.full()) {
    ++dropped_nodes_;
    ++unintended_;
    return -1;
  }
  const OpTraits& op = *frame.traits;
  Node node;
  node.inputs = bad_inputs(frame, output.item);
  node.bits = output.bits;
  node.step = step_;
  node.number = frame.number;
  node.item = output.item;
  node.nested = is_nested();
  node.phase = phase_now();
  node.requires_grad = output.whole->requires_grad();
  node.writes_leaf = output.written && is_leaf_read(output.tensor());
  node.storage = StoragePin(output.tensor().storage());
  node.dtype = output.tensor().scalar_type();
  node.shape = output.tensor().sizes().vec();

  const Context names = context(frame);
  node.op = names.judged;
  node.outer = names.outer;
  node.inner = &op;
  for (auto id = std::max(frame.first_node, graph_.first()); id < std::min(graph_.end(), frame.first_node + 64); ++id) {
    if (!graph_[id].nested || !graph_[id].origin || !graph_[id].inner) continue;
    node.inner = graph_[id].inner;
    break;
  }
  if (names.around) {
    name_backward(node, *names.around);
    if (exact >= 0) {  // in code of the program's own
      node.place = exact;
      if (node.module < 0) node.module = module_at(exact);
    }
  } else {
    node.place = exact >= 0 ? exact : place_of(frame);
    node.module = module_at(node.place);
    node.after = notes().last_module;
    if (node.module >= 0 && node.phase == Phase::data) node.phase = Phase::forward;
  }

  if (op.selects) {  // what it left out is no cause
    const auto left_out = [&](const Edge& edge) { return !(edge.bits & output.bits); };
    if (!std::all_of(node.inputs.begin(), node.inputs.end(), left_out)) std::erase_if(node.inputs, left_out);
  }
  OutputFacts facts;
  facts.bits = output.bits;
  facts.auxiliary = output.auxiliary;
  facts.writes_parameter = node.writes_leaf;
  facts.in_optimizer = node.phase == Phase::optimizer;
  facts.scalar = nonfinite_scalar(frame);
  if (facts.scalar && !op.fills && read_out_.step == step_ && graph_.has(read_out_.node)) {
    node.inputs.push_back({read_out_.node, graph_[read_out_.node].bits, false, -1, -1});
  }
  for (const Edge& edge : node.inputs) {
    (edge.intended ? facts.intended_in : facts.unintended_in) |= edge.bits;
    facts.only_first_argument &= edge.argument == 0;
  }
  const Judgement verdict = judge(op, facts);
  node.origin = verdict.origin;
  for (const Input& input : frame.inputs) {
    const bool may_clip = node.origin && (node.phase == Phase::forward || node.phase == Phase::optimizer);
    if (!may_clip || !input.floating || input.written) continue;
    const Owner owner = names_.owner_of(identity_of(input.tensor));
    node.reads_gradient |= owner.named && owner.role == TensorRole::gradient;
  }
  node.intended = verdict.intended;
  if (node.origin && !node.nested) keep_evidence(node, frame, output);

  const auto edges = node.inputs;
  const bool nested = node.nested, intended = node.intended;
  const Phase phase = node.phase;
  const auto id = add_node(std::move(node));
  if (!nested && !intended) ++unintended_;
  for (const Edge& edge : edges) {
    if (nested || !graph_.has(edge.node)) continue;
    Node& cause = graph_[edge.node];
    const bool prefer =
        !graph_.has(cause.reader) || (graph_[cause.reader].phase == Phase::data && phase != Phase::data);
    if (prefer) cause.reader = id;
  }
  return id;
}

void Tracer::keep_evidence(Node& node, Frame& frame, const Output& output) {
  intercept::fail_here_if(intercept::FailPoint::evidence);
  if (evidence_kept_ >= kMaxEvidence) return;
  ++evidence_kept_;
  OriginEvidence found = evidence::collect(frame, output.tensor(), output.item);
  for (Operand& operand : found.operands) {
    if (operand.is_scalar_argument) continue;
    for (const Edge& edge : node.inputs) {
      if (edge.argument < 0 || operand.name != frame.traits->arguments[edge.argument]) continue;
      operand.state = edge.intended ? OperandState::intended_inf : OperandState::bad;
    }
  }
  found.in_backward = !node.backward_node.empty();
  found.op = found.in_backward ? node.backward_node : node.op->name;
  found.inner_op = node.inner->name;
  if (found.in_backward) found.inner_op = frame.traits->name;
  found.forward_op = node.forward_op;
  node.sample = sample_at(output.tensor(), output.batch, found.index);
  node.evidence = std::make_shared<const OriginEvidence>(std::move(found));
}

}  // namespace firstfault::trace
