// diff RUN RUN: what differs in the setup, and the step at which the numbers part.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "cli/command.h"
#include "cli/json.h"
#include "cli/loaded.h"
#include "cli/style.h"
#include "firstfault/base/names.h"
#include "firstfault/base/numbers.h"

namespace firstfault::cli {
namespace {

struct Arguments {
  std::string first, second;
  double tolerance = 0.01;
  bool json = false;
};

/// One thing that differs; "" on the side that lacks it.
struct Difference {
  std::string what, first, second;
};

using Settings = std::map<std::string, std::string>;

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

Settings program_of(const Setup& setup) {
  Settings out = {{"command", joined(setup.command)},
                  {"directory", setup.directory},
                  {"git commit", setup.git_commit},
                  {"host", setup.host},
                  {"level", setup.level}};
  for (const auto& [name, version] : setup.versions) out["version of " + name] = version;
  return out;
}

Settings model_of(const Setup& setup) {
  Settings out;
  for (const ModuleInfo& one : setup.modules)
    out["module " + one.path] = fmt::format("{}, {}", one.type, counted(one.parameters, "parameter"));
  return out;
}

Settings hyperparameters_of(const Setup& setup) {
  Settings out;
  for (std::size_t i = 0; i < setup.optimizers.size(); ++i) {
    const std::string prefix = fmt::format("optimizer {}", i);
    out[prefix] = setup.optimizers[i].type;
    for (std::size_t g = 0; g < setup.optimizers[i].groups.size(); ++g)
      for (const auto& [name, value] : setup.optimizers[i].groups[g])
        out[fmt::format("{} group {} {}", prefix, g, name)] = show_number(value);
  }
  return out;
}

std::vector<Difference> differences(const Settings& first, const Settings& second) {
  std::vector<Difference> out;
  const auto value = [](const Settings& from, const std::string& name) {
    const auto found = from.find(name);
    return found == from.end() ? std::string() : found->second;
  };
  Settings all = first;
  all.insert(second.begin(), second.end());
  for (const auto& [name, ignored] : all)
    if (value(first, name) != value(second, name)) out.push_back({name, value(first, name), value(second, name)});
  return out;
}

/// A number of a step that both runs have; NaN: not measured, or it is NaN (`nan` then).
struct Reading {
  double value = StepRow::kUnknown;
  bool nan = false;

  bool known() const { return nan || !std::isnan(value); }
  bool same(const Reading& other) const { return nan == other.nan && (nan || value == other.value); }
  bool near(const Reading& other, double tolerance) const {
    if (same(other)) return true;
    if (!std::isfinite(value) || !std::isfinite(other.value)) return false;
    return std::abs(value - other.value) <= tolerance * std::max(std::abs(value), std::abs(other.value));
  }
  std::string text() const { return nan ? "NaN" : show_number(value); }
  Json json() const { return nan ? Json("nan") : measured(value); }
};

Reading loss_of(const StepRow& row) {
  if (row.loss_state == StepRow::Loss::nan) return {StepRow::kUnknown, true};
  if (row.loss_state == StepRow::Loss::unknown) return {};
  return {row.loss, false};
}

Reading norm_of(const StepRow& row) { return {row.gradient_norm, false}; }

struct Parting {
  std::int64_t step = 0;
  Reading first, second;
};

/// Where one series of the two runs parts: at all, and by more than the tolerance.
struct Series {
  std::string name;
  std::int64_t compared = 0;  ///< steps that both runs have kept
  std::optional<Parting> at_all, clearly;
};

Series compare(const std::string& name, const Run& a, const Run& b, double tolerance) {
  const auto reading = name == "loss" ? loss_of : norm_of;
  Series out{name, 0, {}, {}};
  auto other = b.rows.begin();
  for (const StepRow& row : a.rows) {
    while (other != b.rows.end() && other->step < row.step) ++other;
    if (other == b.rows.end()) break;
    if (other->step != row.step) continue;
    const Reading first = reading(row), second = reading(*other);
    if (!first.known() && !second.known()) continue;
    ++out.compared;
    if (!out.at_all && !first.same(second)) out.at_all = {row.step, first, second};
    if (!out.clearly && !first.near(second, tolerance)) out.clearly = {row.step, first, second};
  }
  return out;
}

struct Compared {
  std::vector<Difference> program, hyperparameters, model;
  std::vector<Series> series;

  bool numbers_differ() const {
    return std::any_of(series.begin(), series.end(), [](const Series& one) { return one.at_all.has_value(); });
  }
};

Compared compare(const Loaded& a, const Loaded& b, double tolerance) {
  return {differences(program_of(a.run.setup), program_of(b.run.setup)),
          differences(hyperparameters_of(a.run.setup), hyperparameters_of(b.run.setup)),
          differences(model_of(a.run.setup), model_of(b.run.setup)),
          {compare("loss", a.run, b.run, tolerance), compare("gradient norm", a.run, b.run, tolerance)}};
}

std::vector<std::string> causes_of(const Loaded& loaded) {
  std::vector<std::string> out;
  for (const Hypothesis& one : loaded.hypotheses) out.push_back(one.cause);
  return out;
}

std::string section(const char* title, const std::vector<Difference>& differences, const Style& style) {
  if (differences.empty()) return "";
  std::vector<std::vector<std::string>> cells;
  for (const Difference& one : differences)
    cells.push_back({printable(one.what), one.first.empty() ? "-" : printable(one.first), "|",
                     one.second.empty() ? "-" : printable(one.second)});
  using enum Align;
  return style.bold(title) + "\n" + table(cells, {left, left, left, left}) + "\n";
}

std::string text_of(const Parting& parting) {
  return fmt::format("step {}: {} | {}", parting.step, parting.first.text(), parting.second.text());
}

std::string text_of(const Series& series, double tolerance) {
  if (series.compared == 0) return fmt::format("  {}: no step that both runs have\n", series.name);
  if (!series.at_all)
    return fmt::format("  {}: the same in all {} compared\n", series.name, counted(series.compared, "step"));
  std::string text = fmt::format("  {} differs first at {}\n", series.name, text_of(*series.at_all));
  const std::string percent = show_number(tolerance * 100) + " %";
  if (series.clearly)
    text += fmt::format("  {} differs by more than {} first at {}\n", series.name, percent, text_of(*series.clearly));
  else
    text += fmt::format("  {} never differs by more than {}\n", series.name, percent);
  return text;
}

struct Both {
  const Loaded& a;
  const Loaded& b;
  const Compared& compared;
  double tolerance;
};

std::string verdict_line(const Loaded& loaded) {
  return fmt::format("{}: {}, {}, {}\n", printable(loaded.path), name_of(loaded.run.state),
                     counted(loaded.run.steps, "step"), to_text(loaded.verdict));
}

std::string text_of(const Both& both, const Style& style) {
  std::string text = verdict_line(both.a) + verdict_line(both.b) + "\n";
  text += section("Program", both.compared.program, style);
  text += section("Hyperparameters", both.compared.hyperparameters, style);
  text += section("Model", both.compared.model, style);
  text += style.bold("Numbers") + "\n";
  for (const Series& one : both.compared.series) text += text_of(one, both.tolerance);
  return text;
}

Json json_of(const std::vector<Difference>& differences) {
  Json out = Json::array();
  for (const Difference& one : differences)
    out.push_back({{"what", one.what}, {"first", or_null(one.first)}, {"second", or_null(one.second)}});
  return out;
}

Json json_of(const std::optional<Parting>& parting) {
  if (!parting) return nullptr;
  return {{"step", parting->step}, {"first", parting->first.json()}, {"second", parting->second.json()}};
}

Json json_of(const Loaded& loaded) {
  return {{"file", loaded.path},
          {"state", name_of(loaded.run.state)},
          {"steps", loaded.run.steps},
          {"verdict", to_json(loaded.verdict)},
          {"causes", causes_of(loaded)}};
}

Json json_of(const Both& both) {
  Json json = document("diff");
  json["first"] = json_of(both.a);
  json["second"] = json_of(both.b);
  json["program"] = json_of(both.compared.program);
  json["hyperparameters"] = json_of(both.compared.hyperparameters);
  json["model"] = json_of(both.compared.model);
  json["tolerance"] = both.tolerance;
  json["numbers"] = Json::array();
  for (const Series& one : both.compared.series)
    json["numbers"].push_back({{"name", one.name},
                               {"compared", one.compared},
                               {"differs", json_of(one.at_all)},
                               {"differs_clearly", json_of(one.clearly)}});
  return json;
}

int diff(const Arguments& arguments, const Context& context) {
  const Loaded a = load(arguments.first);
  const Loaded b = load(arguments.second);
  const Compared compared = compare(a, b, arguments.tolerance);
  const Both both{a, b, compared, arguments.tolerance};
  context.out << (arguments.json ? dump(json_of(both)) : text_of(both, Style(context.colour)));
  return compared.numbers_differ() || causes_of(a) != causes_of(b) ? kFound : kDone;
}

}  // namespace

Action declare_diff(Options& options) {
  auto arguments = std::make_shared<Arguments>();
  options.positional(arguments->first, {"FIRST", "run file"});
  options.positional(arguments->second, {"SECOND", "run file"});
  options.fraction(arguments->tolerance, {"--tolerance", "relative difference that counts as clear"});
  options.flag(arguments->json, {"--json", "as JSON"});
  return [arguments](const Context& context) { return diff(*arguments, context); };
}

}  // namespace firstfault::cli
