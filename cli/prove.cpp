// prove SCRIPT: runs it, and again with one thing changed each.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string_view>

#include <fmt/format.h>

#include "cli/command.h"
#include "cli/launch.h"
#include "cli/loaded.h"
#include "firstfault/base/error.h"
#include "firstfault/base/names.h"
#include "firstfault/events/experiment.h"
#include "firstfault/guard/prove.h"
#include "firstfault/present/text.h"
#include "firstfault/reason/changes.h"
#include "firstfault/record/add_facts.h"

namespace firstfault::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kAfterFault = 3;  // steps
constexpr int kNotApplicable = 125;      // a script's exit code where the change met nothing that it could change

struct Arguments {
  Launch launch;
  std::int64_t steps = 0;
};

struct Wish {
  const guard::WindowChange* change = nullptr;
  std::int64_t steps = 0;  // 0: to its end
  bool silent = false;
};

void set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }

void make_silent() {
  const int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nowhere, stream);
}

/// Runs it in a process of its own; its exit code, as a shell has it.
int run_child(const Launch& given, const Wish& wish, const Context& context) {
  context.out.flush();
  context.err.flush();
  const pid_t child = fork();
  if (child < 0) throw Error("prove: no process can be started.");
  if (child == 0) {
    if (wish.silent) make_silent();
    set("FIRSTFAULT_RUN_STEPS", std::to_string(wish.steps));
    if (wish.change) {
      const auto& [name, times, warm_up, text] = *wish.change;
      set("FIRSTFAULT_RUN_CHANGE", fmt::format("{} {} {}", name, times, warm_up));
    }
    int code = 127;
    try {
      code = launch(given, context);
    } catch (const std::exception& error) {
      context.err << "firstfault: " << printable(error.what()) << std::endl;
    }
    _exit(code);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::vector<double> losses_of(const Run& run, std::int64_t most) {
  std::vector<double> losses;
  for (const StepRow& row : run.rows) {
    if (std::ssize(losses) == most) break;
    losses.push_back(row.loss);
    if (!std::isfinite(row.loss)) break;
  }
  return losses;
}

class Script final : public guard::WindowProgram {
 public:
  Script(Launch launch, const Context& context, std::string folder)
      : launch_(std::move(launch)), context_(context), folder_(std::move(folder)) {
    launch_.quiet = true;
  }

  std::optional<guard::WindowRun> run(const guard::WindowChange* change, std::int64_t steps, bool watched) override {
    launch_.run_file = (fs::path(folder_) / fmt::format("{}.ffrun", ++number_)).string();
    const int code = run_child(launch_, {change, steps, true}, context_);
    if (code == kNotApplicable || !fs::exists(launch_.run_file)) return std::nullopt;
    const Loaded loaded = load(launch_.run_file);
    guard::WindowRun window{losses_of(loaded.run, steps), {}};
    // A script that ends with an exception ends its losses.
    if (loaded.run.state == RunState::died && std::ssize(window.losses) < steps) window.losses.push_back(NAN);
    if (watched) {
      window.nonfinite = !loaded.run.origins.empty();
      window.healthy = !window.nonfinite && loaded.hypotheses.empty();
    }
    return window;
  }

 private:
  Launch launch_;
  const Context& context_;
  std::string folder_;
  int number_ = 0;
};

struct Folder {
  std::string path = (fs::temp_directory_path() / "firstfault-prove-XXXXXX").string();
  Folder() {
    if (mkdtemp(path.data()) == nullptr) throw Error("prove: there is no room for a folder in " + path + ".");
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
};

/// Those about the step of the best one.
std::vector<Hypothesis> suspected(const Loaded& loaded) {
  std::vector<Hypothesis> same = loaded.hypotheses;
  std::erase_if(same, [&](const Hypothesis& one) { return one.step != loaded.hypotheses.front().step; });
  return same;
}

guard::WindowPlan plan_of(const Loaded& loaded, const Context& context, bool quiet) {
  const Hypothesis& best = loaded.hypotheses.front();
  guard::WindowPlan plan{.step = best.step};
  const auto bad = std::find_if(loaded.run.rows.begin(), loaded.run.rows.end(),
                                [](const StepRow& row) { return !std::isfinite(row.loss); });
  plan.diverged = bad != loaded.run.rows.end() && bad->step <= best.step + kAfterFault;
  plan.steps = plan.diverged ? std::max(best.step, bad->step) + kAfterFault : loaded.run.steps;
  plan.raw_scores = std::any_of(loaded.run.facts.begin(), loaded.run.facts.end(),
                                [](const Fact& fact) { return fact.kind == FactKind::raw_scores; });
  plan.own = reason::changes_for(suspected(loaded));
  plan.progress = [&context, quiet](const Experiment& one) {
    if (!quiet)
      context.err << fmt::format("firstfault: {}: {} ({:.0f} s)\n", one.text, name_of(one.outcome), one.seconds)
                  << std::flush;
  };
  return plan;
}

void check(const Launch& launch) {
  const auto& command = launch.command;
  if (command.empty() || command.front().empty())
    throw Error("prove: nothing to run. firstfault prove [OPTIONS] script.py|-m module [ARGUMENTS]");
  if (command.front().front() == '-')
    throw Error("prove: no option " + command.front() + "; the script's own options come after its name.");
  if (!is_script(launch)) {
    throw Error("prove: nothing in " + command.front() +
                " can be changed from outside; give a Python script, or use Guard::prove in the program.");
  }
}

int prove(Arguments arguments, const Context& context) {
  Launch& launch = arguments.launch;
  check(launch);
  if (launch.run_file.empty()) {
    const std::string& given = launch.command.front();
    launch.run_file = default_run_file(launch.module ? given : fs::path(given).stem().string());
  }
  launch.run_file = fs::absolute(launch.run_file).string();
  const int code = run_child(launch, {nullptr, arguments.steps, false}, context);
  if (!fs::exists(launch.run_file)) return code;
  const Loaded loaded = load(launch.run_file);
  if (loaded.hypotheses.empty()) {
    context.out << to_text(loaded.verdict) << "; there is nothing to prove.\n";
    return kDone;
  }
  const Folder folder;
  Script script(launch, context, folder.path);
  const auto made = guard::prove_by_windows(script, plan_of(loaded, context, launch.quiet));
  std::vector<Fact> facts;
  for (const Experiment& one : made) facts.push_back(fact_of(one));
  add_facts(launch.run_file, facts);
  const Loaded judged = load(launch.run_file);
  context.out << present::to_text(judged.hypotheses, judged.run) << "\n";
  return kDone;
}

}  // namespace

Action declare_prove(Options& options) {
  auto arguments = std::make_shared<Arguments>();
  Launch& launch = arguments->launch;
  options.flag(launch.module, {"-m", "a Python module, as python -m"});
  options.text(launch.run_file, {"-o,--out", "run file; else runs/<script>-<time>-<process>.ffrun"});
  options.choice(launch.level, {"--level", "how much is watched; on a CPU ops, else modules"},
                 {"gradients", "modules", "ops"});
  options.count(arguments->steps, {"--steps", "of the first run, after which it is ended; 0, the default: to its end"});
  options.flag(launch.quiet, {"-q,--quiet", "no word of firstfault's own on standard error"});
  options.rest(launch.command);
  return [arguments](const Context& context) { return prove(*arguments, context); };
}

}  // namespace firstfault::cli
