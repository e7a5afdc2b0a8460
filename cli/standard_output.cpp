// stdout is a terminal or not, and may have colour or not.
#include "cli/standard_output.h"

#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string_view>

namespace firstfault::cli {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

int run_on_standard_output(const std::vector<std::string>& arguments, const Python& python) {
  std::ios::sync_with_stdio(false);
  const bool terminal = isatty(STDOUT_FILENO) && variable("TERM") != "dumb";
  const bool colour = terminal && variable("NO_COLOR").empty();  // https://no-color.org
  const int code = run_program(arguments, {std::cout, std::cerr, colour, terminal, python});
  std::cout.flush();
  if (std::cout.good()) return code;
  std::cerr << "firstfault: writing to standard output failed; is the disk full?" << std::endl;
  return kUnusable;
}

}  // namespace firstfault::cli
