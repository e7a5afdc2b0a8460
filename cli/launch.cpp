#include "cli/launch.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>

#include <fmt/format.h>

#include "cli/program_file.h"
#include "firstfault/base/error.h"
#include "firstfault/base/names.h"

namespace firstfault::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kCannotRun = 126, kNotFound = 127;  // as a shell has it

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

void set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }

/// What the bootstrap in Python and the preloaded library read, and remove.
void set_wishes(const Launch& launch) {
  set("FIRSTFAULT_RUN_FILE", fs::absolute(run_file_of(launch)).string());
  set("FIRSTFAULT_RUN_LEVEL", launch.level);
  set("FIRSTFAULT_RUN_QUIET", launch.quiet ? "1" : "");
}

int replace_process(const std::string& file, const std::vector<std::string>& command, const Context& context) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  context.out.flush();
  context.err.flush();
  execvp(file.c_str(), arguments.data());
  const int problem = errno;
  context.err << "firstfault: cannot run " << printable(command.front()) << ": " << std::strerror(problem) << std::endl;
  return problem == ENOENT ? kNotFound : kCannotRun;
}

std::vector<std::string> python_command(const Launch& launch, const std::vector<std::string>& python) {
  std::vector<std::string> command = python;
  if (launch.module) command.emplace_back("-m");
  command.insert(command.end(), launch.command.begin(), launch.command.end());
  return command;
}

/// The same command line once more, for the Python package's program.
std::vector<std::string> handed_on(const Launch& launch) {
  std::vector<std::string> python = {"python3", "-m", "firstfault", "run"};
  if (launch.quiet) python.emplace_back("--quiet");
  if (!launch.run_file.empty()) python.insert(python.end(), {"--out", launch.run_file});
  if (!launch.level.empty()) python.insert(python.end(), {"--level", launch.level});
  return python_command(launch, python);
}

int run_python(const Launch& launch, const Context& context) {
  const Python& python = context.python;
  if (python.command.empty()) return replace_process("python3", handed_on(launch), context);
  const char* before = std::getenv("PYTHONPATH");
  set_wishes(launch);
  if (before) set("FIRSTFAULT_RUN_PYTHONPATH", before);
  set("PYTHONPATH", before && *before ? python.bootstrap + ":" + before : python.bootstrap);
  return replace_process(python.command.front(), python_command(launch, python.command), context);
}

std::string why_not_watched(const ProgramFile& program) {
  if (!program.unwatchable.empty()) return program.unwatchable;
  if (access((library_folder() + "/libfirstfault_preload.so").c_str(), R_OK) != 0 ||
      access((library_folder() + "/libfirstfault_live.so").c_str(), R_OK) != 0)
    return "this firstfault was built without its live half: no libfirstfault_live.so in " + library_folder();
  return "";
}

int run_program_file(const Launch& launch, const ProgramFile& program, const Context& context) {
  if (const std::string why = why_not_watched(program); !why.empty()) {
    context.err << "firstfault: " << printable(launch.command.front()) << " runs unwatched: " << printable(why) << "."
                << std::endl;
  } else {
    set_wishes(launch);
    const std::string before = variable("LD_PRELOAD");
    set("LD_PRELOAD", library_folder() + "/libfirstfault_preload.so" + (before.empty() ? "" : ":" + before));
  }
  return replace_process(program.path, launch.command, context);
}

}  // namespace

std::string library_folder() {
  Dl_info info{};
  // Any function of libfirstfault_core does.
  if (!dladdr(reinterpret_cast<void*>(&printable), &info) || !info.dli_fname) return ".";
  std::error_code ignored;
  const fs::path real = fs::canonical(info.dli_fname, ignored);
  return (real.empty() ? fs::path(info.dli_fname) : real).parent_path().string();
}

std::string default_run_file(const std::string& name) {
  char time[32];
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  std::strftime(time, sizeof time, "%Y%m%d-%H%M%S", localtime_r(&now, &local));
  const bool usable = !name.empty() && name.find('/') == std::string::npos;
  return fmt::format("runs/{}-{}-{}.ffrun", usable ? name : "run", time, getpid());
}

void declare_launch(Options& options, Launch& launch) {
  options.flag(launch.module, {"-m", "a Python module, as python -m"});
  options.text(launch.run_file, {"-o,--out", "run file; else runs/<script>-<time>-<process>.ffrun"});
  options.choice(launch.level, {"--level", "how much is watched; on a CPU ops, else modules"},
                 {"gradients", "modules", "ops"});
  options.flag(launch.quiet, {"-q,--quiet", "no word of firstfault's own"});
  options.rest(launch.command);
}

void check_command(const Launch& launch, const std::string& command, const std::string& usage) {
  const auto& words = launch.command;
  if (words.empty() || words.front().empty())
    throw Error(command + ": nothing to run. firstfault " + command + " [OPTIONS] " + usage);
  if (words.front().front() == '-')
    throw Error(command + ": no option " + words.front() + "; the program's own options come after its name.");
  if (launch.run_file.empty()) return;
  // Said before the program starts, not hours later.
  const auto folder = fs::absolute(launch.run_file).parent_path();
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored))
    throw Error(command + ": the folder of --out " + launch.run_file + " does not exist; make it first.");
}

std::string run_file_of(const Launch& launch) {
  if (!launch.run_file.empty()) return launch.run_file;
  const std::string& program = launch.command.front();
  return default_run_file(launch.module ? program : fs::path(program).stem().string());
}

bool is_script(const Launch& launch) { return launch.module || inspect(launch.command.front()).python; }

int launch(const Launch& launch, const Context& context) {
  if (launch.module) return run_python(launch, context);
  const ProgramFile program = inspect(launch.command.front());
  if (program.python) return run_python(launch, context);
  if (program.interpreter)
    throw Error("run: give the script itself, without " + launch.command.front() +
                ": firstfault run [OPTIONS] script.py [ARGUMENTS], or firstfault run -m module [ARGUMENTS].");
  if (program.path.empty()) {
    context.err << "firstfault: there is no program " << printable(launch.command.front()) << std::endl;
    return kNotFound;
  }
  return run_program_file(launch, program, context);
}

}  // namespace firstfault::cli
