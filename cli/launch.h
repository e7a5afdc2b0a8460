// Replaces this process by the program to be watched.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace firstfault::cli {

struct Launch {
  std::vector<std::string> command;  ///< the program and its arguments; with `module` the module's name and arguments
  bool module = false;               ///< as `python -m`
  std::string run_file;              ///< absolute; "": runs/<name>-<time>-<process>.ffrun under the current folder
  std::string level;                 ///< "": the default
  bool quiet = false;
};

/// "runs/train-20260314-150926-4711.ffrun" for "train" in the process 4711: no two runs of one machine share it.
std::string default_run_file(const std::string& name);

/// Does not return where it succeeds; else the exit code that a shell would give (126, 127), after a sentence on
/// `context.err`. A program that cannot be watched runs unwatched, after a sentence that says why.
int launch(const Launch& launch, const Context& context);

/// The options of every command that starts a program; they come before its name. `launch` must outlive the parsing.
void declare_launch(Options& options, Launch& launch);
/// Throws Error where there is nothing to run: `usage` is what to type after the command's name.
void check_command(const Launch& launch, const std::string& command, const std::string& usage);
/// Where it is recorded: `run_file`, or the default.
std::string run_file_of(const Launch& launch);

/// Whether it is Python that runs it.
bool is_script(const Launch& launch);

/// Folder of libfirstfault_core, beside which the other libraries are.
std::string library_folder();

}  // namespace firstfault::cli
