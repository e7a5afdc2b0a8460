// run SCRIPT|PROGRAM: runs it unchanged, and records it.
#include <filesystem>
#include <memory>

#include "cli/command.h"
#include "cli/launch.h"
#include "firstfault/base/error.h"

namespace firstfault::cli {
namespace {

struct Arguments {
  Launch launch;
};

/// Said before the program starts, not hours later.
void check_folder_of(const std::string& run_file) {
  const auto folder = std::filesystem::absolute(run_file).parent_path();
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored))
    throw Error("run: the folder of --out " + run_file + " does not exist; make it first.");
}

int run(const Arguments& arguments, const Context& context) {
  const auto& command = arguments.launch.command;
  if (command.empty() || command.front().empty())
    throw Error("run: nothing to run. firstfault run [OPTIONS] script.py|-m module|./program [ARGUMENTS]");
  if (command.front().front() == '-')
    throw Error("run: no option " + command.front() + "; the program's own options come after its name.");
  if (!arguments.launch.run_file.empty()) check_folder_of(arguments.launch.run_file);
  return launch(arguments.launch, context);
}

}  // namespace

Action declare_run(Options& options) {
  auto arguments = std::make_shared<Arguments>();
  Launch& launch = arguments->launch;
  options.flag(launch.module, {"-m", "a Python module, as python -m"});
  options.text(launch.run_file, {"-o,--out", "run file; else runs/<script>-<time>-<process>.ffrun"});
  options.choice(launch.level, {"--level", "how much is watched; on a CPU ops, else modules"},
                 {"gradients", "modules", "ops"});
  options.flag(launch.quiet, {"-q,--quiet", "no word of firstfault's own"});
  options.rest(launch.command);
  return [arguments](const Context& context) { return run(*arguments, context); };
}

}  // namespace firstfault::cli
