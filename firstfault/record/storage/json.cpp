// Each struct has one list of its fields, visited by the writer and by the reader.
#include "firstfault/record/storage/json.h"

#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>
#include <type_traits>

#include <nlohmann/json.hpp>

#include "firstfault/record/storage/names.h"

namespace firstfault::record {
namespace {

using Json = nlohmann::ordered_json;

template <class T, class U>
concept Is = std::is_same_v<std::remove_const_t<T>, U>;

template <class Visit>
void fields(Visit&& visit, Is<Counts> auto& counts) {
  visit("nan", counts.nan);
  visit("pos_inf", counts.pos_inf);
  visit("neg_inf", counts.neg_inf);
}

template <class Visit>
void fields(Visit&& visit, Is<SourceFrame> auto& frame) {
  visit("file", frame.file);
  visit("line", frame.line);
  visit("function", frame.function);
}

template <class Visit>
void fields(Visit&& visit, Is<PathStep> auto& step) {
  visit("op_number", step.op_number);
  visit("op", step.op);
  visit("module", step.module);
  visit("phase", step.phase);
  visit("holds", step.holds);
  visit("outer_op", step.outer_op);
  visit("shape", step.shape);
  visit("dtype", step.dtype);
}

template <class Visit>
void fields(Visit&& visit, Is<Operand> auto& operand) {
  visit("name", operand.name);
  visit("dtype", operand.dtype);
  visit("shape", operand.shape);
  visit("is_scalar_argument", operand.is_scalar_argument);
  visit("was_overwritten", operand.was_overwritten);
  visit("state", operand.state);
  visit("counts", operand.counts);
  visit("value", operand.value);
  visit("index", operand.index);
  visit("min", operand.min);
  visit("max", operand.max);
  visit("zeros", operand.zeros);
  visit("source", operand.source);
}

template <class Visit>
void fields(Visit&& visit, Is<RowEvidence> auto& row) {
  visit("dim", row.dim);
  visit("length", row.length);
  visit("neg_inf", row.neg_inf);
  visit("nan", row.nan);
  visit("index", row.index);
}

template <class Visit>
void fields(Visit&& visit, Is<OriginEvidence> auto& evidence) {
  visit("op", evidence.op);
  visit("inner_op", evidence.inner_op);
  visit("forward_op", evidence.forward_op);
  visit("in_backward", evidence.in_backward);
  visit("dtype", evidence.dtype);
  visit("shape", evidence.shape);
  visit("output", evidence.output);
  visit("first", evidence.first);
  visit("index", evidence.index);
  visit("operands", evidence.operands);
  visit("row", evidence.row);
  visit("role", evidence.role);
  visit("role_name", evidence.role_name);
}

template <class Visit>
void fields(Visit&& visit, Is<Origin> auto& origin) {
  visit("step", origin.step);
  visit("op_number", origin.op_number);
  visit("phase", origin.phase);
  visit("op", origin.op);
  visit("inner_op", origin.inner_op);
  visit("outer_op", origin.outer_op);
  visit("forward_op", origin.forward_op);
  visit("module", origin.module);
  visit("after_module", origin.after_module);
  visit("param", origin.param);
  visit("device", origin.device);
  visit("sample", origin.sample);
  visit("stack", origin.stack);
  visit("evidence", origin.evidence);
  visit("outcome", origin.outcome);
  visit("sink", origin.sink);
  visit("path", origin.path);
  visit("merged", origin.merged);
  visit("replayed", origin.replayed);
  visit("mechanism", origin.mechanism);
  visit("cause", origin.cause);
  visit("because", origin.because);
  visit("advice", origin.advice);
}

template <class Visit>
void fields(Visit&& visit, Is<GradientShare> auto& share) {
  visit("name", share.name);
  visit("share", share.share);
}

template <class Visit>
void fields(Visit&& visit, Is<GuardAction> auto& action) {
  visit("step", action.step);
  visit("kind", action.kind);
  visit("fault", action.fault);
  visit("reason", action.reason);
  visit("undone", action.undone);
  visit("snapshot", action.snapshot);
  visit("lost", action.lost);
  visit("norm", action.norm);
  visit("limit", action.limit);
  visit("coefficient", action.coefficient);
  visit("angle", action.angle);
  visit("length", action.length);
  visit("largest", action.largest);
}

template <class Visit>
void fields(Visit&& visit, Is<OptimizerInfo> auto& optimizer) {
  visit("type", optimizer.type);
  visit("groups", optimizer.groups);
}

template <class Visit>
void fields(Visit&& visit, Is<Setup> auto& setup) {
  visit("command", setup.command);
  visit("directory", setup.directory);
  visit("git_commit", setup.git_commit);
  visit("host", setup.host);
  visit("started", setup.started);
  visit("versions", setup.versions);
  visit("level", setup.level);
  visit("optimizers", setup.optimizers);
}

// Writing.

template <class T>
Json write(const std::optional<T>& value);
template <class T>
Json write(const std::vector<T>& values);
template <class T>
Json write(const std::map<std::string, T>& values);

Json write(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}
Json write(bool value) { return value; }
Json write(int value) { return value; }
Json write(std::int64_t value) { return value; }
Json write(const std::string& value) { return value; }
Json write(NonFinite value) { return static_cast<int>(value); }

template <class T>
Json write(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return std::string(stored_name(value));
  } else {
    Json object = Json::object();
    fields([&](const char* key, const auto& field) { object[key] = write(field); }, value);
    return object;
  }
}

template <class T>
Json write(const std::optional<T>& value) {
  return value ? write(*value) : Json(nullptr);
}

template <class T>
Json write(const std::vector<T>& values) {
  Json array = Json::array();
  for (const T& value : values) array.push_back(write(value));
  return array;
}

template <class T>
Json write(const std::map<std::string, T>& values) {
  Json object = Json::object();
  for (const auto& [key, value] : values) object[key] = write(value);
  return object;
}

// Reading.

template <class T>
void read(const Json& json, std::optional<T>& value);
template <class T>
void read(const Json& json, std::vector<T>& values);
template <class T>
void read(const Json& json, std::map<std::string, T>& values);

void read(const Json& json, double& value) {
  if (!json.is_string()) {
    value = json.get<double>();
    return;
  }
  const auto& text = json.get_ref<const std::string&>();
  constexpr double inf = std::numeric_limits<double>::infinity();
  value = text == "inf" ? inf : text == "-inf" ? -inf : std::numeric_limits<double>::quiet_NaN();
}
void read(const Json& json, bool& value) { value = json.get<bool>(); }
void read(const Json& json, int& value) { value = json.get<int>(); }
void read(const Json& json, std::int64_t& value) { value = json.get<std::int64_t>(); }
void read(const Json& json, std::string& value) { value = json.get_ref<const std::string&>(); }
void read(const Json& json, NonFinite& value) { value = static_cast<NonFinite>(json.get<int>() & kAnyBad); }

template <class T>
void read(const Json& json, T& value) {
  if constexpr (std::is_enum_v<T>) {
    const auto known = from_stored_name<T>(json.get_ref<const std::string&>());
    if (!known) throw std::runtime_error("unknown name");
    value = *known;
  } else {
    fields(
        [&](const char* key, auto& field) {
          if (const auto found = json.find(key); found != json.end()) read(*found, field);
        },
        value);
  }
}

template <class T>
void read(const Json& json, std::optional<T>& value) {
  if (json.is_null()) {
    value.reset();
  } else {
    read(json, value.emplace());
  }
}

template <class T>
void read(const Json& json, std::vector<T>& values) {
  if (!json.is_array()) throw std::runtime_error("no array");
  values.clear();
  for (const Json& element : json) read(element, values.emplace_back());
}

template <class T>
void read(const Json& json, std::map<std::string, T>& values) {
  if (!json.is_object()) throw std::runtime_error("no object");
  values.clear();
  for (const auto& [key, element] : json.items()) read(element, values[key]);
}

template <class T>
std::string dump(const T& value) {
  return write(value).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string to_json(const Origin& origin) { return dump(origin); }
std::string to_json(const GuardAction& action) { return dump(action); }
std::string to_json(const Setup& setup) { return dump(setup); }
std::string to_json(const std::map<std::string, double>& numbers) { return dump(numbers); }
std::string to_json(const std::vector<std::int64_t>& shape) { return dump(shape); }

void from_json(std::string_view text, Origin& origin) { read(Json::parse(text), origin); }
void from_json(std::string_view text, GuardAction& action) { read(Json::parse(text), action); }
void from_json(std::string_view text, Setup& setup) { read(Json::parse(text), setup); }
void from_json(std::string_view text, std::map<std::string, double>& numbers) { read(Json::parse(text), numbers); }
void from_json(std::string_view text, std::vector<std::int64_t>& shape) { read(Json::parse(text), shape); }

}  // namespace firstfault::record
