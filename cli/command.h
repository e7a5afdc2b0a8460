// What a command of the program is: a name, its options, and what it does. The list of them is cli/list.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

namespace firstfault::cli {

/// Exit codes of every command (docs/cli.md).
enum Exit : int {
  kDone = 0,      ///< done; check: healthy; diff: alike
  kFound = 1,     ///< check: a fault; diff: the runs differ
  kUnusable = 2,  ///< a file that cannot be used, or a command line that cannot be understood
};

/// How to run Python scripts. Empty in the native program, which hands scripts to `python3 -m firstfault`.
struct Python {
  std::vector<std::string> command;  ///< interpreter and its flags
  std::string bootstrap;             ///< folder of the package's sitecustomize.py
};

/// Where a command writes to, and who called it.
struct Context {
  std::ostream& out;
  std::ostream& err;
  bool colour = false;    ///< terminal escapes for colour may be written to `out`
  bool terminal = false;  ///< `out` is a terminal: it may be redrawn
  Python python = {};
};

/// What a command declares its command line with. Every `into` must outlive the parsing.
class Options {
 public:
  struct Names {
    const char* names;  ///< "-n,--rows"; of a positional argument "RUN"
    const char* help;
  };

  virtual ~Options() = default;
  virtual void positional(std::string& into, Names names) = 0;  ///< required
  virtual void text(std::string& into, Names names) = 0;
  virtual void choice(std::string& into, Names names, std::vector<std::string> of) = 0;
  virtual void count(std::int64_t& into, Names names) = 0;  ///< 0 or more
  virtual void fraction(double& into, Names names) = 0;     ///< 0 or more
  virtual void flag(bool& into, Names names) = 0;
  virtual void rest(std::vector<std::string>& into) = 0;  ///< all from the first argument that is no option of ours
};

using Action = std::function<int(const Context&)>;  ///< gives the exit code; may throw Error (exit code 2)

struct Command {
  const char* name;
  const char* help;             ///< one line
  Action (*declare)(Options&);  ///< declares its options; what it gives back is run once they are filled
};

/// In the order in which --help shows them.
std::span<const Command> commands();

/// The command line without the program's name. Never throws; the exit code. Not for two threads at once where the
/// command is `run`, which replaces the process.
int run_program(const std::vector<std::string>& arguments, const Context& context);

}  // namespace firstfault::cli
