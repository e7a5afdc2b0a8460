// The program `firstfault`.
#include <string>
#include <vector>

#include "cli/standard_output.h"

int main(int argc, char** argv) {
  return firstfault::cli::run_on_standard_output(std::vector<std::string>(argv + 1, argv + argc));
}
