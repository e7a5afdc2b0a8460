#include "cli/json.h"

#include <cmath>

#include "firstfault/present/json.h"

namespace firstfault::cli {

Json document(const char* type) { return {{"schema", 1}, {"type", type}}; }

Json part(const std::string& json) {
  Json out = Json::parse(json);
  out.erase("schema");
  out.erase("type");
  return out;
}

std::string dump(const Json& json, bool one_line) {
  return json.dump(one_line ? -1 : 2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json measured(double value) {
  if (std::isnan(value)) return nullptr;
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

Json to_json(const Verdict& verdict) {
  const bool fault = verdict.kind == Verdict::Kind::fault;
  return {{"kind", name_of(verdict.kind)},
          {"cause", or_null(verdict.cause)},
          {"confidence", fault ? Json(verdict.confidence) : Json(nullptr)},
          {"step", verdict.step < 0 ? Json(nullptr) : Json(verdict.step)}};
}

Json to_json(const Run& run, const Transition& transition) {
  const auto index = static_cast<std::size_t>(transition.site);
  const bool known = transition.site >= 0 && index < run.sites.size();
  return part(present::to_json(transition, known ? run.sites[index] : Site{}));
}

}  // namespace firstfault::cli
