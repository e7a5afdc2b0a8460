// The JSON of what a watched run has: hypotheses, transitions, sites, rows.
#include <algorithm>

#include "firstfault/present/json.h"
#include "firstfault/present/json_parts.h"

namespace firstfault::present {
namespace {

/// "not separable" -> "not_separable", "non-finite" -> "non_finite": as the enumerators are called.
std::string identifier(std::string_view name) {
  std::string text(name);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == ' ' || c == '-'; }, '_');
  return text;
}

Json map(const std::map<std::string, double>& numbers) {
  Json out = Json::object();
  for (const auto& [name, value] : numbers) out[name] = number(value);
  return out;
}

Json modules(const Setup& setup) {
  Json out = Json::array();
  for (const ModuleInfo& module : setup.modules)
    out.push_back({{"path", module.path}, {"type", module.type}, {"parameters", module.parameters}});
  return out;
}

Json optimizers(const Setup& setup) {
  Json out = Json::array();
  for (const OptimizerInfo& optimizer : setup.optimizers) {
    Json groups = Json::array();
    for (const auto& group : optimizer.groups) groups.push_back(map(group));
    out.push_back({{"type", optimizer.type}, {"groups", std::move(groups)}});
  }
  return out;
}

/// As it was given or seen: NaN and Inf are values of a loss, not the lack of one.
Json loss(const StepRow& row) {
  switch (row.loss_state) {
    case StepRow::Loss::unknown: return measured(row.loss);
    case StepRow::Loss::nan: return "nan";
    default: return number(row.loss);
  }
}

Json row_without_sites(const StepRow& row) {
  return {{"step", row.step},
          {"seconds", row.seconds},
          {"loss", loss(row)},
          {"gradient_norm", measured(row.gradient_norm)},
          {"update_ratio", measured(row.update_ratio)},
          {"parameter_norm", measured(row.parameter_norm)},
          {"lr", measured(row.lr)},
          {"loss_scale", measured(row.loss_scale)},
          {"backwards", row.backwards},
          {"gradients_left_over", row.gradients_left_over},
          {"skipped", row.skipped},
          {"reset_state", row.reset_state}};
}

const Site& site_of(const Transition& transition, const Run& run) {
  static const Site unknown;
  const auto index = static_cast<std::size_t>(transition.site);
  return transition.site >= 0 && index < run.sites.size() ? run.sites[index] : unknown;
}

Json transitions(const Run& run) {
  Json out = Json::array();
  for (const Transition& one : run.transitions) out.push_back(json(one, site_of(one, run)));
  return out;
}

}  // namespace

Json json(const Evidence& evidence) {
  return {{"step", evidence.step < 0 ? Json(nullptr) : Json(evidence.step)},
          {"site", text_or_null(evidence.site)},
          {"text", evidence.text}};
}

Json json(const Hypothesis& hypothesis) {
  const bool placed = !hypothesis.file.empty();
  return {{"cause", hypothesis.cause},
          {"confidence", number(hypothesis.confidence)},
          {"standing", identifier(name_of(hypothesis.standing))},
          {"step", hypothesis.step},
          {"onset_step", integer(hypothesis.onset_step)},
          {"phase", text_or_null(hypothesis.phase)},
          {"op", text_or_null(hypothesis.op)},
          {"forward_op", text_or_null(hypothesis.forward_op)},
          {"module", text_or_null(hypothesis.module)},
          {"param", text_or_null(hypothesis.param)},
          {"sample", integer(hypothesis.sample)},
          {"file", text_or_null(hypothesis.file)},
          {"line", placed ? Json(hypothesis.line) : Json(nullptr)},
          {"mechanism", text_or_null(hypothesis.mechanism)},
          {"description", hypothesis.description},
          {"evidence", list(hypothesis.evidence)},
          {"advice", hypothesis.advice}};
}

Json json(const Site& site) {
  return {{"role", name_of(site.role)},
          {"module", text_or_null(site.module)},
          {"name", site.name},
          {"op", text_or_null(site.op)},
          {"dtype", site.dtype},
          {"shape", site.shape},
          {"order", site.order < 0 ? Json(nullptr) : Json(site.order)}};
}

Json json(const Health& health) {
  return {{"nonfinite", health.seen() ? Json(health.nonfinite) : Json(nullptr)},
          {"rms", measured(health.rms)},
          {"absmax", measured(health.absmax)},
          {"mean", measured(health.mean)},
          {"zeros", measured(health.zeros)},
          {"saturated", measured(health.saturated)},
          {"dead", measured(health.dead)},
          {"varies", measured(health.varies)},
          {"columns", measured(health.columns)},
          {"update", measured(health.update)},
          {"flips", measured(health.flips)},
          {"lr", measured(health.lr)},
          {"second", measured(health.second)},
          {"eps", measured(health.eps)},
          {"state_steps", measured(health.state_steps)}};
}

Json json(const StepRow& row) {
  Json out = row_without_sites(row);
  out["sites"] = list(row.sites);
  return out;
}

Json json(const Fact& fact) {
  return {{"kind", name_of(fact.kind)},
          {"module", text_or_null(fact.module)},
          {"op", text_or_null(fact.op)},
          {"detail", fact.detail},
          {"first_step", fact.first_step},
          {"last_step", fact.last_step},
          {"count", fact.count},
          {"numbers", map(fact.numbers)},
          {"file", text_or_null(fact.file)},
          {"line", fact.file.empty() ? Json(nullptr) : Json(fact.line)}};
}

Json json(const GuardAction& action) {
  Json largest = Json::array();
  for (const GradientShare& one : action.largest)
    largest.push_back({{"param", one.name}, {"share", number(one.share)}});
  return {{"step", action.step},
          {"action", name_of(action.kind)},
          {"fault", text_or_null(action.fault)},
          {"reason", text_or_null(action.reason)},
          {"undone", text_or_null(action.undone)},
          {"snapshot", action.snapshot < 0 ? Json(nullptr) : Json(action.snapshot)},
          {"lost", action.lost},
          {"norm", measured(action.norm)},
          {"limit", measured(action.limit)},
          {"coefficient", measured(action.coefficient)},
          {"angle", measured(action.angle)},
          {"length", measured(action.length)},
          {"largest", std::move(largest)}};
}

Json json(const Setup& setup) {
  return {{"command", setup.command}, {"directory", setup.directory}, {"git_commit", setup.git_commit},
          {"host", setup.host},       {"started", setup.started},     {"versions", setup.versions},
          {"level", setup.level},     {"modules", modules(setup)},    {"optimizers", optimizers(setup)}};
}

Json json(const Transition& transition, const Site& site) {
  return {{"step", transition.step},
          {"site_index", transition.site < 0 ? Json(nullptr) : Json(transition.site)},
          {"site", text_or_null(site.name)},
          {"role", name_of(site.role)},
          {"module", text_or_null(site.module)},
          {"op", text_or_null(site.op)},
          {"from_state", identifier(name_of(transition.from))},
          {"to_state", identifier(name_of(transition.to))},
          {"value", number(transition.value)},
          {"baseline", measured(transition.baseline)},
          {"confidence", number(transition.confidence)}};
}

Json watched_part(const Run& run) {
  Json rows = Json::array();
  for (const StepRow& row : run.rows) rows.push_back(row_without_sites(row));
  return {{"state", name_of(run.state)}, {"setup", json(run.setup)},        {"sites", list(run.sites)},
          {"rows", std::move(rows)},     {"transitions", transitions(run)}, {"facts", list(run.facts)},
          {"actions", list(run.actions)}};
}

std::string to_json(const Hypothesis& hypothesis, int indent) {
  return document("hypothesis", json(hypothesis), indent);
}

std::string to_json(std::span<const Hypothesis> hypotheses, const Run& run, int indent) {
  Json items = Json::array();
  for (const Hypothesis& hypothesis : hypotheses) items.push_back(json(hypothesis));
  const Json explanation = {{"steps", run.steps},
                            {"state", name_of(run.state)},
                            {"hypotheses", std::move(items)},
                            {"transitions", transitions(run)},
                            {"uninspected", list(run.uninspected)},
                            {"warnings", run.warnings}};
  return document("explanation", explanation, indent);
}

std::string to_json(const Transition& transition, const Site& site, int indent) {
  return document("transition", json(transition, site), indent);
}

std::string to_json(const Evidence& evidence, int indent) { return document("evidence", json(evidence), indent); }
std::string to_json(const Health& health, int indent) { return document("health", json(health), indent); }
std::string to_json(const StepRow& row, int indent) { return document("row", json(row), indent); }
std::string to_json(const Site& site, int indent) { return document("site", json(site), indent); }
std::string to_json(const GuardAction& action, int indent) { return document("action", json(action), indent); }

std::string to_json(const Fact& fact, int indent) { return document("fact", json(fact), indent); }
std::string to_json(const Setup& setup, int indent) { return document("setup", json(setup), indent); }

}  // namespace firstfault::present
