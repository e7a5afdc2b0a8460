#include "cli/columns.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace firstfault::cli {
namespace {

using Row = std::vector<Cell>;
using Visit = std::function<void(const Row&)>;

/// NaN stands for "not measured" in the events structs.
Cell measured(double value) { return std::isnan(value) ? Cell() : Cell(value); }
Cell text(const std::string& value) { return value.empty() ? Cell() : Cell(value); }
Cell text(std::string_view value) { return text(std::string(value)); }
/// As present/json.h spells it: "non_finite".
Cell state(Condition condition) {
  std::string name(name_of(condition));
  std::replace(name.begin(), name.end(), '-', '_');
  return Cell(name);
}
Cell integer(std::int64_t value) { return Cell(value); }

Cell place(std::int32_t index) {
  if (index < 0) return {};
  return Cell(std::int64_t{index});
}

Cell loss(const StepRow& row) {
  switch (row.loss_state) {
    case StepRow::Loss::unknown: return {};
    case StepRow::Loss::nan: return Cell(std::numeric_limits<double>::quiet_NaN());
    case StepRow::Loss::inf: return Cell(std::copysign(std::numeric_limits<double>::infinity(), row.loss));
    case StepRow::Loss::finite: break;
  }
  return Cell(row.loss);
}

/// Names that the program gave to log().
std::vector<std::string> logged_names(const Run& run) {
  std::set<std::string> names;
  for (const StepRow& row : run.rows)
    for (const auto& [name, value] : row.logged) names.insert(name);
  return {names.begin(), names.end()};
}

Row step_row(const StepRow& row, const std::vector<std::string>& logged) {
  Row cells = {integer(row.step),
               measured(row.seconds),
               loss(row),
               measured(row.gradient_norm),
               measured(row.update_ratio),
               measured(row.parameter_norm),
               measured(row.lr),
               measured(row.loss_scale),
               integer(row.optimizer),
               integer(row.backwards),
               Cell(row.gradients_left_over),
               Cell(row.skipped),
               Cell(row.reset_state)};
  for (const std::string& name : logged) {
    const auto found = row.logged.find(name);
    if (found == row.logged.end())
      cells.emplace_back();
    else
      cells.emplace_back(found->second);
  }
  return cells;
}

Table steps(const Run& run) {
  Table table{{"step", "seconds", "loss", "gradient_norm", "update_ratio", "parameter_norm", "lr", "loss_scale",
               "optimizer", "backwards", "gradients_left_over", "skipped", "reset_state"},
              {"integer", "number", "number", "number", "number", "number", "number", "number", "integer", "integer",
               "bool", "bool", "bool"},
              {}};
  const auto logged = logged_names(run);
  for (const std::string& name : logged) table.columns.push_back("logged " + name);
  table.types.resize(table.columns.size(), "number");
  table.rows = [&run, logged](const Visit& visit) {
    for (const StepRow& row : run.rows) visit(step_row(row, logged));
  };
  return table;
}

Row site_row(const StepRow& row, const Site& site, const Health& health) {
  return {integer(row.step),       text(name_of(site.role)),  text(site.module),          text(site.name),
          text(site.op),           integer(health.nonfinite), measured(health.rms),       measured(health.absmax),
          measured(health.mean),   measured(health.zeros),    measured(health.saturated), measured(health.dead),
          measured(health.varies), measured(health.columns),  measured(health.update),    measured(health.flips),
          measured(health.lr),     measured(health.second),   measured(health.eps),       measured(health.state_steps),
          place(health.row)};
}

void visit_sites(const Run& run, const Visit& visit) {
  for (const StepRow& row : run.rows)
    for (std::size_t i = 0; i < row.sites.size() && i < run.sites.size(); ++i)
      if (row.sites[i].seen()) visit(site_row(row, run.sites[i], row.sites[i]));
}

Table sites(const Run& run) {
  Table table{{"step",   "role",  "module", "name",      "op",   "nonfinite",   "rms",
               "absmax", "mean",  "zeros",  "saturated", "dead", "varies",      "columns",
               "update", "flips", "lr",     "second",    "eps",  "state_steps", "row"},
              {"integer", "text", "text", "text", "text", "integer"},
              [&run](const Visit& visit) { visit_sites(run, visit); }};
  table.types.resize(table.columns.size(), "number");
  return table;
}

void visit_events(const Run& run, const Visit& visit) {
  for (const Transition& one : run.transitions) {
    const bool known = one.site >= 0 && static_cast<std::size_t>(one.site) < run.sites.size();
    const Site site = known ? run.sites[static_cast<std::size_t>(one.site)] : Site{};
    visit({integer(one.step), text(known ? name_of(site.role) : std::string_view()), text(site.module), text(site.name),
           text(site.op), state(one.from), state(one.to), Cell(one.value), measured(one.baseline),
           measured(one.confidence)});
  }
}

Table events(const Run& run) {
  return {{"step", "role", "module", "name", "op", "from_state", "to_state", "value", "baseline", "confidence"},
          {"integer", "text", "text", "text", "text", "text", "text", "number", "number", "number"},
          [&run](const Visit& visit) { visit_events(run, visit); }};
}

}  // namespace

Table table_of(const Run& run, const std::string& what) {
  if (what == "sites") return sites(run);
  if (what == "events") return events(run);
  return steps(run);
}

}  // namespace firstfault::cli
