// What the files that write JSON share. Internal.
#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "firstfault/record/run.h"

namespace firstfault::present {

using Json = nlohmann::ordered_json;

inline constexpr int kSchemaVersion = 1;

inline Json number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}
inline Json number(const std::optional<double>& value) { return value ? number(*value) : Json(nullptr); }
inline Json integer(const std::optional<std::int64_t>& value) { return value ? Json(*value) : Json(nullptr); }
inline Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }
/// Of a number for which NaN means that it was not measured.
inline Json measured(double value) { return std::isnan(value) ? Json(nullptr) : number(value); }

Json json(const Counts& counts);
Json json(const Operand& operand);
Json json(const SourceFrame& frame);
Json json(const PathStep& step);
Json json(const Origin& origin);
Json json(const Uninspected& missed);
Json json(const Evidence& evidence);
Json json(const Hypothesis& hypothesis);
Json json(const Site& site);
Json json(const Health& health);
Json json(const StepRow& row);
Json json(const Fact& fact);
Json json(const GuardAction& action);
Json json(const Setup& setup);
/// `site` gives its name, role, module and op.
Json json(const Transition& transition, const Site& site);
/// The keys of a Run that only a watched one fills.
Json watched_part(const Run& run);

template <class T>
Json list(const std::vector<T>& items) {
  Json out = Json::array();
  for (const T& item : items) out.push_back(json(item));
  return out;
}

/// Names may hold any bytes: what is not UTF-8 becomes U+FFFD.
inline std::string document(const char* type, const Json& value, int indent) {
  Json out = {{"schema", kSchemaVersion}, {"type", type}};
  out.update(value);
  return out.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace firstfault::present
