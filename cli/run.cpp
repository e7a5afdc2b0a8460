// run SCRIPT|PROGRAM: runs it unchanged, and records it.
#include <memory>

#include "cli/command.h"
#include "cli/launch.h"

namespace firstfault::cli {
namespace {

struct Arguments {
  Launch launch;
};

int run(const Arguments& arguments, const Context& context) {
  check_command(arguments.launch, "run", "script.py|-m module|./program [ARGUMENTS]");
  return launch(arguments.launch, context);
}

}  // namespace

Action declare_run(Options& options) {
  auto arguments = std::make_shared<Arguments>();
  declare_launch(options, arguments->launch);
  return [arguments](const Context& context) { return run(*arguments, context); };
}

}  // namespace firstfault::cli
