// rules: the causes that are known, in the order in which they are asked.
#include <memory>

#include "cli/command.h"
#include "cli/json.h"
#include "cli/style.h"
#include "firstfault/reason/rules/rule.h"

namespace firstfault::cli {
namespace {

struct Arguments {
  bool json = false;
};

int rules(const Arguments& arguments, const Context& context) {
  Json list = Json::array();
  std::vector<std::vector<std::string>> cells;
  for (const reason::Rule& one : reason::rules()) {
    const std::string condition = one.condition();
    list.push_back({{"name", one.name},
                    {"symptom", one.symptom},
                    {"condition", condition},
                    {"evidence", one.evidence},
                    {"advice", one.advice},
                    {"source", one.source}});
    cells.push_back({std::string(one.name), condition});
  }
  context.out << (arguments.json ? dump(list) : table(cells, {Align::left, Align::left}));
  return kDone;
}

}  // namespace

Action declare_rules(Options& options) {
  auto arguments = std::make_shared<Arguments>();
  options.flag(arguments->json, {"--json", "as a JSON array"});
  return [arguments](const Context& context) { return rules(*arguments, context); };
}

}  // namespace firstfault::cli
