// prove SCRIPT: runs it, and again with one thing changed each.
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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
#include "firstfault/reason/engine.h"
#include "firstfault/record/add_facts.h"

namespace firstfault::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kAfterFault = 3;  // steps

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

/// While it lives, signals that would end this process are handed to the child, and kept for afterwards.
class SignalsToChild {
 public:
  explicit SignalsToChild(pid_t child) {
    child_ = child;
    struct sigaction hand_on {};
    hand_on.sa_handler = [](int signal) {
      caught_ = signal;
      kill(child_, signal);
    };
    for (std::size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &hand_on, &before_[i]);
  }
  ~SignalsToChild() {
    for (std::size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &before_[i], nullptr);
  }
  SignalsToChild(const SignalsToChild&) = delete;
  SignalsToChild& operator=(const SignalsToChild&) = delete;
  static int caught() noexcept { return caught_; }  ///< 0: none

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
  static inline volatile sig_atomic_t caught_ = 0;
  static inline volatile pid_t child_ = 0;
  struct sigaction before_[std::size(kSignals)] = {};
};

struct Interrupted {
  int signal;
};

[[noreturn]] void become(const Launch& given, const Wish& wish, const Context& context) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (wish.silent) make_silent();
  set("FIRSTFAULT_RUN_STEPS", std::to_string(wish.steps));
  if (wish.change) {
    set("FIRSTFAULT_RUN_CHANGE",
        fmt::format("{} {} {}", wish.change->name, wish.change->divisor, wish.change->warm_up));
  }
  int code = 127;
  try {
    code = launch(given, context);
  } catch (const std::exception& error) {
    context.err << "firstfault: " << printable(error.what()) << std::endl;
  }
  _exit(code);
}

/// Runs it in a process of its own; its exit code, as a shell has it. Throws Interrupted.
int run_child(const Launch& given, const Wish& wish, const Context& context) {
  context.out.flush();
  context.err.flush();
  const pid_t child = fork();
  if (child < 0) throw Error("prove: no process can be started.");
  if (child == 0) become(given, wish, context);
  int status = 0;
  const SignalsToChild signals(child);
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (SignalsToChild::caught() != 0) throw Interrupted{SignalsToChild::caught()};
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Of the steps whose loss is known, up to the first that is not finite; where optimizers take turns, of one of them.
std::vector<double> losses_of(const Run& run) {
  std::vector<double> losses;
  std::optional<std::int32_t> optimizer;
  for (const StepRow& row : run.rows) {
    if (row.loss_state == StepRow::Loss::unknown) continue;
    if (row.optimizer != optimizer.value_or(row.optimizer)) continue;
    optimizer = row.optimizer;
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
    if (fs::exists(launch_.run_file + kUnused) || !fs::exists(launch_.run_file)) return std::nullopt;
    const Loaded loaded = load(launch_.run_file);
    fs::remove(launch_.run_file);
    guard::WindowRun window{.losses = losses_of(loaded.run), .steps = std::min(steps, loaded.run.steps)};
    const bool finite = window.losses.empty() || std::isfinite(window.losses.back());
    window.threw = finite && code != 0;
    if (window.threw) window.losses.push_back(NAN);
    if (watched) {
      window.nonfinite = !loaded.run.origins.empty();
      window.causes = reason::causes_of(loaded.run);
    }
    return window;
  }

 private:
  static constexpr const char* kUnused = ".unused";  // a file that a child leaves where its change met nothing

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
  const auto bad = std::find_if(loaded.run.rows.begin(), loaded.run.rows.end(), [](const StepRow& row) {
    return row.loss_state != StepRow::Loss::unknown && !std::isfinite(row.loss);
  });
  plan.diverged = bad != loaded.run.rows.end() && bad->step <= best.step + kAfterFault;
  const std::int64_t fault = plan.diverged ? std::max(best.step, bad->step) : best.step;
  plan.steps = guard::window_spans(0, fault, loaded.run.steps, plan.diverged, {0}).front().steps;
  plan.raw_scores = holds(loaded.run, FactKind::raw_scores);
  plan.own = reason::changes_for(suspected(loaded));
  plan.progress = [&context, quiet](const Experiment& one) {
    if (quiet) return;
    context.err << fmt::format("firstfault: {}: {} ({:.0f} s)\n", one.text, name_of(one.outcome), one.seconds)
                << std::flush;
  };
  return plan;
}

/// Which file that is: another one has its name when a run has been recorded.
std::pair<ino_t, time_t> identity(const std::string& path) {
  struct stat file {};
  return stat(path.c_str(), &file) == 0 ? std::pair(file.st_ino, file.st_mtime) : std::pair<ino_t, time_t>();
}

void check(const Launch& launch) {
  check_command(launch, "prove", "script.py|-m module [ARGUMENTS]");
  if (is_script(launch)) return;
  throw Error("prove: nothing in " + launch.command.front() +
              " can be changed from outside; give a Python script, or use Guard::prove in the program.");
}

int prove_script(const Arguments& arguments, const Context& context) {
  const Launch& launch = arguments.launch;
  const auto before = identity(launch.run_file);
  const int code = run_child(launch, {nullptr, arguments.steps, false}, context);
  if (identity(launch.run_file) == before) return code;  // nothing was recorded
  Loaded loaded = load(launch.run_file);
  if (loaded.hypotheses.empty()) {
    context.out << to_text(loaded.verdict) << "; there is nothing to prove.\n";
    return kDone;
  }
  const Folder folder;
  Script script(launch, context, folder.path);
  std::vector<Fact> facts;
  for (const Experiment& one : guard::prove_by_windows(script, plan_of(loaded, context, launch.quiet))) {
    facts.push_back(fact_of(one));
    loaded.run.facts.push_back(facts.back());
  }
  context.out << present::to_text(reason::hypotheses(loaded.run), loaded.run) << '\n';
  add_facts(launch.run_file, facts);
  return kDone;
}

int prove(Arguments arguments, const Context& context) {
  Launch& launch = arguments.launch;
  check(launch);
  launch.run_file = fs::absolute(run_file_of(launch)).string();
  try {
    return prove_script(arguments, context);
  } catch (const Interrupted& interrupted) {
    std::signal(interrupted.signal, SIG_DFL);
    std::raise(interrupted.signal);
    return 128 + interrupted.signal;  // where it is blocked
  }
}

}  // namespace

Action declare_prove(Options& options) {
  auto arguments = std::make_shared<Arguments>();
  options.count(arguments->steps, {"--steps", "of the first run, after which it is ended; 0, the default: to its end"});
  declare_launch(options, arguments->launch);
  return [arguments](const Context& context) { return prove(*arguments, context); };
}

}  // namespace firstfault::cli
