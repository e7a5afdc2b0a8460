// explain RUN|FOLDER: the hypotheses, likeliest first.
#include <algorithm>
#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "cli/command.h"
#include "cli/json.h"
#include "cli/loaded.h"
#include "cli/style.h"
#include "firstfault/base/error.h"
#include "firstfault/base/names.h"
#include "firstfault/present/json.h"
#include "firstfault/present/text.h"

namespace firstfault::cli {
namespace {

struct Arguments {
  std::string path;
  bool json = false;
};

/// One of several files: what it says, or why it cannot be read.
struct Member {
  std::string path;
  Loaded loaded;
  std::string error;
};

std::vector<std::string> run_files_in(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> found;
  for (auto it = std::filesystem::directory_iterator(folder, error); !error && it != end(it); it.increment(error))
    if (it->path().extension() == ".ffrun") found.push_back(it->path().string());
  if (error) throw Error("cannot list the folder " + folder + ": " + error.message() + ".");
  if (found.empty())
    throw Error("the folder " + folder + " holds no run file (*.ffrun): name one, or a folder that has some.");
  std::sort(found.begin(), found.end());
  return found;
}

Member member(const std::string& path) {
  Member out;
  out.path = path;
  try {
    out.loaded = load(path);
  } catch (const std::exception& error) {
    out.error = error.what();
  }
  return out;
}

std::string text_of(const Loaded& loaded) { return present::to_text(loaded.hypotheses, loaded.run); }

Json json_of(const Loaded& loaded) {
  Json json = document("explanation");
  json["file"] = loaded.path;
  json["verdict"] = to_json(loaded.verdict);
  json.update(part(present::to_json(loaded.hypotheses, loaded.run)));
  return json;
}

int explain_file(const Arguments& arguments, const Context& context) {
  const Loaded loaded = load(arguments.path);
  context.out << (arguments.json ? dump(json_of(loaded)) : text_of(loaded) + "\n");
  return kDone;
}

Json json_of(const Member& member) {
  if (member.error.empty()) return json_of(member.loaded);
  return {{"file", member.path}, {"error", member.error}};
}

void write_members(const std::vector<Member>& members, const Context& context) {
  const Style style(context.colour);
  const char* gap = "";
  for (const Member& one : members) {
    context.out << gap << style.bold(printable(one.path)) << "\n";
    context.out << (one.error.empty() ? text_of(one.loaded) : printable(one.error)) << "\n";
    gap = "\n";
  }
}

int explain_folder(const Arguments& arguments, const Context& context) {
  std::vector<Member> members;
  for (const std::string& path : run_files_in(arguments.path)) members.push_back(member(path));
  if (arguments.json) {
    Json json = document("explanations");
    json["runs"] = Json::array();
    for (const Member& one : members) json["runs"].push_back(json_of(one));
    context.out << dump(json);
  } else {
    write_members(members, context);
  }
  const bool usable = std::any_of(members.begin(), members.end(), [](const Member& m) { return m.error.empty(); });
  return usable ? kDone : kUnusable;
}

int explain(const Arguments& arguments, const Context& context) {
  std::error_code ignored;
  const bool folder = std::filesystem::is_directory(arguments.path, ignored);
  return folder ? explain_folder(arguments, context) : explain_file(arguments, context);
}

}  // namespace

Action declare_explain(Options& options) {
  auto arguments = std::make_shared<Arguments>();
  options.positional(arguments->path, {"RUN", "run file, or a folder of run files"});
  options.flag(arguments->json, {"--json", "as JSON"});
  return [arguments](const Context& context) { return explain(*arguments, context); };
}

}  // namespace firstfault::cli
