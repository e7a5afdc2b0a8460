// check RUN: one line, and an exit code for scripts.
#include <memory>

#include <fmt/format.h>

#include "cli/command.h"
#include "cli/json.h"
#include "cli/loaded.h"
#include "cli/style.h"
#include "firstfault/base/names.h"

namespace firstfault::cli {
namespace {

struct Arguments {
  std::string path;
  bool json = false;
};

int exit_code(const Verdict& verdict) {
  switch (verdict.kind) {
    case Verdict::Kind::healthy: return kDone;
    case Verdict::Kind::fault: return kFound;
    case Verdict::Kind::nothing_recorded: break;
  }
  return kUnusable;  // silence is not health
}

void write_text(const Loaded& loaded, const Context& context) {
  const Style style(context.colour);
  const std::string verdict = to_text(loaded.verdict);
  const bool healthy = loaded.verdict.kind == Verdict::Kind::healthy;
  context.out << fmt::format("{}: {} ({}, {})\n", printable(loaded.path),
                             healthy ? style.green(verdict) : style.red(verdict), counted(loaded.run.steps, "step"),
                             name_of(loaded.run.state));
  write_warnings(loaded.run, context);
}

void write_json(const Loaded& loaded, const Context& context) {
  Json json = document("check");
  json["file"] = loaded.path;
  json["verdict"] = to_json(loaded.verdict);
  json["state"] = name_of(loaded.run.state);
  json["steps"] = loaded.run.steps;
  json["warnings"] = loaded.run.warnings;
  context.out << dump(json);
}

int check(const Arguments& arguments, const Context& context) {
  const Loaded loaded = load(arguments.path);
  arguments.json ? write_json(loaded, context) : write_text(loaded, context);
  return exit_code(loaded.verdict);
}

}  // namespace

Action declare_check(Options& options) {
  auto arguments = std::make_shared<Arguments>();
  options.positional(arguments->path, {"RUN", "run file"});
  options.flag(arguments->json, {"--json", "as JSON"});
  return [arguments](const Context& context) { return check(*arguments, context); };
}

}  // namespace firstfault::cli
