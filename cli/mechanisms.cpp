// mechanisms: what is known, in the order in which it is asked.
#include <memory>

#include "cli/command.h"
#include "cli/json.h"
#include "cli/style.h"
#include "firstfault/reason/mechanisms/mechanism.h"

namespace firstfault::cli {
namespace {

struct Arguments {
  bool json = false;
};

int mechanisms(const Arguments& arguments, const Context& context) {
  Json list = Json::array();
  std::vector<std::vector<std::string>> cells;
  for (const reason::Mechanism& one : reason::mechanisms()) {
    list.push_back({{"name", one.name},
                    {"condition", one.condition},
                    {"cause", one.cause},
                    {"reading", one.reading},
                    {"remedy", one.remedy}});
    cells.push_back({std::string(one.name), std::string(one.condition)});
  }
  context.out << (arguments.json ? dump(list) : table(cells, {Align::left, Align::left}));
  return kDone;
}

}  // namespace

Action declare_mechanisms(Options& options) {
  auto arguments = std::make_shared<Arguments>();
  options.flag(arguments->json, {"--json", "as a JSON array"});
  return [arguments](const Context& context) { return mechanisms(*arguments, context); };
}

}  // namespace firstfault::cli
