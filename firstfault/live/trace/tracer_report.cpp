// From nodes of the graph to the plain values that the reading half explains and shows.
#include <algorithm>
#include <limits>
#include <tuple>

#include "firstfault/live/measure/scan.h"
#include "firstfault/live/trace/evidence/collect.h"
#include "firstfault/live/trace/tracer_detail.h"

namespace firstfault::trace {
namespace {

constexpr std::size_t kMaxReported = 256;  // per trace; counted beyond

std::string op_of(const Node& node) {
  if (!node.backward_node.empty()) return node.backward_node;
  return node.op ? node.op->name : std::string();
}

std::string unless_same(const intercept::OpTraits* op, const std::string& as) {
  return op && op->name != as ? op->name : std::string();
}

// An op with which a loader writes down what is missing, and not one that failed.
bool marks(const Node& node) { return node.op && (node.op->fills || node.op->constant || node.op->pure_write); }

NonFinite first_of(std::uint8_t bits) {
  return bits & kNaN ? kNaN : bits & kPosInf ? kPosInf : bits & kNegInf ? kNegInf : kFinite;
}

// Origins that tell a person the same thing.
bool same_story(const Origin& a, const Origin& b) {
  if (a.outcome == Outcome::fault && a.step != b.step) return false;
  return std::tie(a.outcome, a.phase, a.op, a.module, a.param, a.evidence.first) ==
         std::tie(b.outcome, b.phase, b.op, b.module, b.param, b.evidence.first);
}

}  // namespace

void Tracer::report_step(std::vector<Reported>& into) {
  report_faults(into);
  report_notes(into);
}

void Tracer::report(std::vector<Reported>& into, Reported fresh) {
  for (Reported& known : into) {
    if (!same_story(known.origin, fresh.origin)) continue;
    known.origin.merged += known.origin.op_number != fresh.origin.op_number;  // else the same one, by another way
    return;
  }
  if (into.size() < kMaxReported) {
    into.push_back(std::move(fresh));
  } else {
    ++dropped_origins_;
  }
}

void Tracer::report_faults(std::vector<Reported>& into) {
  struct Found {
    std::int32_t origin;
    const SinkHit* hit;
  };
  std::vector<Found> found;
  for (const SinkHit& hit : hits_) {
    for (const auto origin : graph_.origins_of(hit.node)) {
      if (graph_[origin].reported) continue;
      graph_[origin].reported = true;
      found.push_back({origin, &hit});
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.origin < b.origin; });
  for (const Found& one : found) {
    if (graph_[one.origin].noted) {  // kept for a later step, where it did harm after all
      const auto number = static_cast<std::int64_t>(graph_[one.origin].number);
      std::erase_if(into, [&](const Reported& known) { return known.origin.op_number == number; });
    }
    Reported fresh = describe(graph_, one.origin);
    fresh.origin.outcome = Outcome::fault;
    fresh.origin.sink = one.hit->sink;
    fresh.origin.path = describe_path(graph_, one.origin, one.hit->node);
    report(into, std::move(fresh));
  }
}

// Values that reached no sink. Swallowed: an Inf of the forward that arithmetic on the way to the loss made finite.
void Tracer::report_notes(std::vector<Reported>& into) {
  std::vector<std::vector<Absorber>> absorbed(graph_.size());
  for (auto id = graph_.first(); id < graph_.end(); ++id) {
    const Node& node = graph_[id];
    if (node.absorbers.empty() || node.intended) continue;
    for (const auto origin : graph_.origins_of(id)) {
      auto& all = absorbed[origin - graph_.first()];
      all.insert(all.end(), node.absorbers.begin(), node.absorbers.end());
    }
  }
  for (auto id = graph_.first(); id < graph_.end(); ++id) {
    const Node& node = graph_[id];
    const bool counts =
        node.origin && !node.intended && !node.nested && !node.reported && !node.noted && node.carried_from < 0;
    if (!counts || node.step != step_) continue;
    // On the way to the loss; or a norm of gradients, by which clipping divides.
    const bool counts_without = node.reads_gradient;
    const auto& absorbers = absorbed[id - graph_.first()];
    const bool by_arithmetic = std::any_of(absorbers.begin(), absorbers.end(), [&](const Absorber& a) {
      return !a.selects && (a.requires_grad || counts_without);
    });
    const bool on_the_way =
        node.kind == Node::Kind::op && (counts_without || (node.phase == Phase::forward && node.requires_grad));
    graph_[id].noted = true;
    Reported fresh = describe(graph_, id);
    fresh.origin.outcome = absorbers.empty() ? Outcome::unused : Outcome::deselected;
    if (by_arithmetic && on_the_way && !(node.bits & kNaN)) fresh.origin.outcome = Outcome::swallowed;
    report(into, std::move(fresh));
  }
}

Tracer::Reported Tracer::describe(const Graph& graph, std::int32_t id) const {
  const Node& node = graph[id];
  Origin origin;
  if (node.evidence) origin.evidence = *node.evidence;
  if (!node.evidence) {  // beyond the cap, or an Inf that is meant
    origin.evidence.op = op_of(node);
    origin.evidence.first = first_of(node.bits);
    origin.evidence.shape = node.shape;
    origin.evidence.dtype = evidence::dtype_name(node.dtype);
  }
  origin.device = "cpu";
  if (!batch_void_.load()) origin.sample = node.sample;
  origin.step = node.step;
  origin.op_number = static_cast<std::int64_t>(node.number);
  origin.phase = node.phase;
  origin.op = op_of(node);
  origin.forward_op = node.forward_op;
  origin.module = names_.module(node.module);
  if (node.module < 0 && node.phase != Phase::optimizer) origin.after_module = names_.module(node.after);
  if (!node.backward_node.empty()) {
    origin.inner_op = node.inner ? node.inner->name : "";
  } else {
    origin.inner_op = unless_same(node.inner, origin.op);
    origin.outer_op = unless_same(node.outer, origin.op);
  }
  intercept::PlaceId place = node.place;
  if (const Owner owner = names_.owner_of(node.storage.living()); owner.named && owner.role != TensorRole::buffer) {
    origin.param = owner.named->name;
  }
  if (node.kind != Node::Kind::op || (node.phase == Phase::data && marks(node))) {
    if (!describe_number(graph, id, origin)) describe_outside(graph, node, origin);
    if (graph.has(node.reader) && !node.compiled) place = graph[node.reader].place;
  }
  return {std::move(origin), place, id};
}

// The op that read a bad tensor first stands for where the value came in.
void Tracer::name_reader(const Node& reader, Origin& origin) const {
  origin.op = origin.evidence.op = op_of(reader);
  origin.inner_op = unless_same(reader.inner, origin.op);
  origin.outer_op = unless_same(reader.outer, origin.op);
  origin.module = names_.module(reader.module);
  if (reader.module < 0) origin.after_module = names_.module(reader.after);
}

// An Inf that the program wrote into the call of an op: the op is where it came in.
bool Tracer::describe_number(const Graph& graph, std::int32_t id, Origin& origin) const {
  const Node& node = graph[id];
  if (!node.is_number || !graph.has(node.reader)) return false;
  const Node& reader = graph[node.reader];
  const auto edge =
      std::find_if(reader.inputs.begin(), reader.inputs.end(), [&](const Edge& e) { return e.node == id; });
  if (edge == reader.inputs.end() || !reader.inner || edge->argument < 0) return false;
  OriginEvidence& evidence = origin.evidence;
  name_reader(reader, origin);
  evidence.inner_op = origin.inner_op;
  origin.phase = reader.phase;
  evidence.shape = reader.shape;
  evidence.dtype = evidence::dtype_name(reader.dtype);
  Operand number;
  number.name = reader.inner->arguments[edge->argument];
  number.dtype = evidence::dtype_name(node.dtype);
  number.is_scalar_argument = true;
  number.state = OperandState::bad;
  number.value =
      node.bits & kPosInf ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
  evidence.operands = {std::move(number)};
  return true;
}

// A tensor that was bad already: its role, and the op and module that read it first.
void Tracer::describe_outside(const Graph& graph, const Node& node, Origin& origin) const {
  OriginEvidence& evidence = origin.evidence;
  if (node.compiled) {
    origin.op = evidence.op = kCompiledFunction;
    evidence.role = TensorRole::compiled;
    if (!origin.module.empty()) evidence.role_name = "in module '" + origin.module + "'";
    return;
  }
  if (graph.has(node.reader)) {
    const Node& reader = graph[node.reader];
    if (node.kind == Node::Kind::op) evidence.role_name = "made by " + op_of(node);
    name_reader(reader, origin);
    origin.forward_op = evidence.forward_op = reader.forward_op;
    if (reader.phase != Phase::data) origin.phase = reader.phase;
  } else if (node.kind == Node::Kind::op) {
    return;  // made before the model ran, and nothing read it
  }
  if (node.kind == Node::Kind::unwritten) {
    evidence.role = TensorRole::unwritten;
    return;
  }
  const Owner owner = names_.owner_of(node.storage.living());
  evidence.role = owner.role;
  if (owner.named) evidence.role_name = owner.named->name;
  if (owner.role == TensorRole::parameter) {
    origin.phase = Phase::parameter;
  } else if (owner.named) {
    origin.phase = Phase::outside;
  } else if (origin.phase == Phase::forward || origin.phase == Phase::data || node.phase == Phase::data ||
             node.kind == Node::Kind::op) {
    origin.phase = Phase::data;
    evidence.role = TensorRole::batch;
  } else {
    origin.phase = Phase::outside;
    evidence.role = TensorRole::outside;
  }
}

std::vector<PathStep> Tracer::describe_path(const Graph& graph, std::int32_t origin, std::int32_t target) const {
  std::vector<PathStep> steps;
  const Node& first = graph[origin];
  if (previous_.has(first.carried_origin) && &graph != &previous_) {
    steps = describe_path(previous_, first.carried_origin, first.carried_from);
    PathStep kept;
    kept.op_number = static_cast<std::int64_t>(first.number);
    kept.op = describe_storage(first.storage.living(), "a tensor kept");
    kept.module = names_.module(first.module);
    kept.phase = Phase::parameter;
    kept.holds = names_of(previous_[first.carried_from].bits);
    steps.push_back(std::move(kept));
  }
  std::int64_t around = -1;
  for (const auto id : graph.path(origin, target)) {
    const Node& node = graph[id];
    const bool is_link = id == origin && !steps.empty();
    if (node.nested || node.kind != Node::Kind::op || is_link) continue;
    if (!steps.empty() && node.around >= 0 && node.around == around) {  // another op inside the same node
      steps.back().holds = names_of(node.bits);
      continue;
    }
    around = node.around;
    PathStep step;
    step.op_number = static_cast<std::int64_t>(node.number);
    step.op = op_of(node);
    step.outer_op = node.backward_node.empty() ? unless_same(node.outer, step.op) : "";
    step.module = names_.module(node.module);
    step.phase = node.phase;
    step.holds = names_of(node.bits);
    step.shape = node.shape;
    step.dtype = evidence::dtype_name(node.dtype);
    steps.push_back(std::move(step));
  }
  return steps;
}

std::string Tracer::describe_storage(std::uintptr_t storage, const char* otherwise) const {
  const Owner owner = names_.owner_of(storage);
  if (!owner.named) return otherwise;
  const char* what = owner.role == TensorRole::gradient ? "gradient of '"
                     : owner.role == TensorRole::buffer ? "buffer '"
                                                        : "parameter '";
  return what + owner.named->name + "'";
}

std::string Tracer::describe_target(const at::Tensor& tensor, const Graph& graph, std::int32_t node) const {
  if (const auto name = describe_storage(identity_of(tensor), ""); !name.empty()) return name;
  if (tensor.dim() == 0 && tensor.requires_grad()) return "loss";
  if (graph.has(node) && graph[node].kind == Node::Kind::op) return "output of " + op_of(graph[node]);
  return "tensor";
}

std::vector<Origin> Tracer::with_stacks(std::vector<Reported> reported) {
  std::vector<Origin> origins;
  for (Reported& one : reported) {
    if (one.place >= 0) one.origin.stack = places_->frames_of(one.place);
    origins.push_back(std::move(one.origin));
  }
  return origins;
}

std::optional<Diagnosis> Tracer::diagnose(const at::Tensor& whole, bool stopped) {
  Diagnosis diagnosis;
  const at::Tensor values = measure::explicit_values(whole);
  const at::Tensor& tensor = values.defined() ? values : whole;
  std::vector<Reported> found;
  {
    const std::lock_guard lock(intercept::observer_mutex());
    if (!measure::can_scan(tensor)) return std::nullopt;
    Slot* slot = slots_.find(tensor);
    if (slot && !(slot->state & kAnyBad) && !slot->is_of(tensor)) slot = nullptr;  // an address that was given out anew
    const bool named = names_.owner_of(identity_of(tensor)).named != nullptr;
    if (!slot && !named && !compiled_region(tensor)) return std::nullopt;
    const auto scan = measure::scan_full(tensor);
    diagnosis.counts = scan.counts;
    diagnosis.shape = tensor.sizes().vec();
    diagnosis.dtype = evidence::dtype_name(tensor.scalar_type());
    diagnosis.ops = static_cast<std::int64_t>(records_.load());
    const Graph* graph = &graph_;
    std::int32_t node = slot && (slot->state & kAnyBad) ? slot->node : -1;
    if (graph_.has(node) && previous_.has(graph_[node].carried_from)) {
      node = graph_[node].carried_from;
      graph = &previous_;
    }
    diagnosis.target = describe_target(tensor, *graph, node);
    if (scan.counts.total() == 0) return diagnosis;
    if (!graph->has(node)) {
      if (stopped && !named) return std::nullopt;  // made, or written, after the observation
      node = node_in_sink(tensor, /*may_be_mask=*/false);
      if (!graph->has(node)) return diagnosis;
    }
    for (const auto origin : graph->origins_of(node)) {
      Reported one = describe(*graph, origin);
      one.origin.outcome = (*graph)[origin].intended ? Outcome::intended : Outcome::fault;
      one.origin.sink = diagnosis.target;
      one.origin.path = describe_path(*graph, origin, node);
      report(found, std::move(one));
    }
  }
  diagnosis.culprits = with_stacks(std::move(found));
  return diagnosis;
}

std::size_t Tracer::reported() const {
  const std::lock_guard lock(intercept::observer_mutex());
  return reported_.size();
}

std::vector<Origin> Tracer::reported_from(std::size_t first) {
  std::vector<Reported> fresh;
  {
    const std::lock_guard lock(intercept::observer_mutex());
    for (std::size_t i = first; i < reported_.size(); ++i) fresh.push_back(reported_[i]);
  }
  return with_stacks(std::move(fresh));
}

Run Tracer::run() {
  Run run;
  std::vector<Reported> all;
  {
    const std::lock_guard lock(intercept::observer_mutex());
    all = reported_;
    if (!step_pending_.load()) {  // the open step as it stands, without ending it
      const auto hits = hits_.size();
      const auto graph = graph_;
      const auto dropped = dropped_origins_;
      for (const auto root : roots_) {
        if (graph_.has(root)) hits_.push_back({root, "loss"});
      }
      report_step(all);
      graph_ = graph;
      dropped_origins_ = dropped;
      hits_.resize(hits);
    }
    const bool open = step_ == 0 ? records_.load() > 0 : model_entered_.load() || backward_done_.load();
    run.steps = step_ + (step_pending_.load() || open ? 1 : 0);
    run.ops = static_cast<std::int64_t>(records_.load());
    for (const auto& [what, tensors] : uninspected_) run.uninspected.push_back({what, tensors});
    if (dropped_nodes_ > 0) run.warnings.push_back(std::to_string(dropped_nodes_) + " bad values beyond the cap");
    if (dropped_origins_ > 0) run.warnings.push_back(std::to_string(dropped_origins_) + " origins beyond the cap");
  }
  if (const auto reason = intercept::failure(); !reason.empty()) {
    run.warnings.push_back("observation ended early: " + reason);
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Reported& a, const Reported& b) { return a.origin.outcome < b.origin.outcome; });
  run.origins = with_stacks(std::move(all));
  return run;
}

}  // namespace firstfault::trace
