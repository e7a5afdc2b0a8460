// events RUN: every transition, one to a line.
#include <memory>

#include "cli/command.h"
#include "cli/json.h"
#include "cli/loaded.h"
#include "firstfault/present/text.h"
#include "firstfault/record/read_run.h"

namespace firstfault::cli {
namespace {

struct Arguments {
  std::string path;
  bool json = false;
};

void write_json(const std::string& path, const Run& run, const Context& context) {
  Json json = document("events");
  json["file"] = path;
  json["state"] = name_of(run.state);
  json["events"] = Json::array();
  for (const Transition& one : run.transitions) json["events"].push_back(to_json(run, one));
  json["warnings"] = run.warnings;
  context.out << dump(json);
}

int events(const Arguments& arguments, const Context& context) {
  const Run run = read_run(arguments.path);
  if (arguments.json) {
    write_json(arguments.path, run, context);
    return kDone;
  }
  for (const Transition& one : run.transitions) context.out << present::to_text(one, run) << "\n";
  if (run.transitions.empty()) context.out << "No events: no site changed its state.\n";
  write_warnings(run, context);
  return kDone;
}

}  // namespace

Action declare_events(Options& options) {
  auto arguments = std::make_shared<Arguments>();
  options.positional(arguments->path, {"RUN", "run file"});
  options.flag(arguments->json, {"--json", "as JSON"});
  return [arguments](const Context& context) { return events(*arguments, context); };
}

}  // namespace firstfault::cli
