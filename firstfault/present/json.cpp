// The JSON of docs/json.md. A key is always there; what is absent is null, "" or [].
#include "firstfault/present/json.h"

#include <optional>

#include "firstfault/present/json_parts.h"

namespace firstfault::present {
namespace {

Json kind(NonFinite bit) {
  switch (bit) {
    case kNaN: return "NaN";
    case kPosInf: return "+Inf";
    case kNegInf: return "-Inf";
    default: return nullptr;
  }
}

const char* name_of(OperandState state) {
  switch (state) {
    case OperandState::finite: return "finite";
    case OperandState::intended_inf: return "intended_inf";
    case OperandState::bad: return "bad";
    case OperandState::unknown: return "unknown";
  }
  return "unknown";
}

const char* name_of(TensorRole role) {
  switch (role) {
    case TensorRole::none: return "none";
    case TensorRole::parameter: return "parameter";
    case TensorRole::buffer: return "buffer";
    case TensorRole::gradient: return "gradient";
    case TensorRole::batch: return "batch";
    case TensorRole::outside: return "outside";
    case TensorRole::unwritten: return "unwritten";
    case TensorRole::compiled: return "compiled";
  }
  return "none";
}

const char* name_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::fault: return "fault";
    case Outcome::swallowed: return "swallowed";
    case Outcome::deselected: return "deselected";
    case Outcome::unused: return "unused";
    case Outcome::intended: return "intended";
  }
  return "unused";
}

Json row_object(const std::optional<RowEvidence>& row) {
  if (!row) return nullptr;
  return {
      {"dim", row->dim}, {"length", row->length}, {"neg_inf", row->neg_inf}, {"nan", row->nan}, {"index", row->index}};
}

Json place(const Origin& origin) {
  const bool known = !origin.stack.empty() && !origin.stack.front().file.empty();
  return {{"step", origin.step},
          {"op_number", origin.op_number},
          {"phase", firstfault::name_of(origin.phase)},
          {"op", origin.op},
          {"inner_op", origin.inner_op},
          {"outer_op", origin.outer_op},
          {"forward_op", origin.forward_op},
          {"module", origin.module},
          {"after_module", origin.after_module},
          {"param", origin.param},
          {"file", known ? Json(origin.stack.front().file) : Json(nullptr)},
          {"line", known ? Json(origin.stack.front().line) : Json(nullptr)},
          {"stack", list(origin.stack)}};
}

Json evidence(const Origin& origin) {
  const OriginEvidence& from = origin.evidence;
  return {{"kind", kind(from.first)},    {"counts", json(from.output)},
          {"index", from.index},         {"sample", integer(origin.sample)},
          {"shape", from.shape},         {"dtype", from.dtype},
          {"device", origin.device},     {"operands", list(from.operands)},
          {"row", row_object(from.row)}, {"role", name_of(from.role)},
          {"role_name", from.role_name}};
}

Json judgement(const Origin& origin) {
  return {{"mechanism", origin.mechanism},      {"cause", origin.cause},
          {"because", origin.because},          {"advice", origin.advice},
          {"outcome", name_of(origin.outcome)}, {"sink", origin.sink.empty() ? Json(nullptr) : Json(origin.sink)},
          {"path", list(origin.path)},          {"merged", origin.merged},
          {"replayed", origin.replayed}};
}

Json whole(const Diagnosis& diagnosis) {
  return {{"target", diagnosis.target},          {"shape", diagnosis.shape}, {"dtype", diagnosis.dtype},
          {"counts", json(diagnosis.counts)},    {"ops", diagnosis.ops},     {"note", diagnosis.note},
          {"culprits", list(diagnosis.culprits)}};
}

Json whole(const Run& run) {
  Json out = {{"steps", run.steps},
              {"ops", run.ops},
              {"origins", list(run.origins)},
              {"uninspected", list(run.uninspected)},
              {"warnings", run.warnings}};
  out.update(watched_part(run));
  return out;
}

}  // namespace

Json json(const Counts& counts) {
  return {{"nan", counts.nan}, {"pos_inf", counts.pos_inf}, {"neg_inf", counts.neg_inf}};
}

Json json(const Operand& operand) {
  return {{"name", operand.name},
          {"dtype", operand.dtype},
          {"shape", operand.shape},
          {"is_scalar_argument", operand.is_scalar_argument},
          {"was_overwritten", operand.was_overwritten},
          {"state", name_of(operand.state)},
          {"counts", json(operand.counts)},
          {"value", number(operand.value)},
          {"index", operand.index},
          {"min", number(operand.min)},
          {"max", number(operand.max)},
          {"zeros", integer(operand.zeros)},
          {"source", operand.source}};
}

Json json(const SourceFrame& frame) {
  return {{"file", frame.file}, {"line", frame.line}, {"function", frame.function}};
}

Json json(const PathStep& step) {
  return {{"op_number", step.op_number},
          {"op", step.op},
          {"outer_op", step.outer_op},
          {"module", step.module},
          {"phase", firstfault::name_of(step.phase)},
          {"holds", step.holds},
          {"shape", step.shape},
          {"dtype", step.dtype}};
}

Json json(const Origin& origin) {
  Json out = place(origin);
  out.update(evidence(origin));
  out.update(judgement(origin));
  return out;
}

Json json(const Uninspected& missed) { return {{"what", missed.what}, {"tensors", missed.tensors}}; }

std::string to_json(const Origin& origin, int indent) { return document("origin", json(origin), indent); }
std::string to_json(const Diagnosis& diagnosis, int indent) { return document("diagnosis", whole(diagnosis), indent); }
std::string to_json(const Run& run, int indent) { return document("run", whole(run), indent); }

}  // namespace firstfault::present
