// The program `firstfault`, for the Python package's entry.
#include <utility>

#include "cli/loaded.h"
#include "cli/standard_output.h"
#include "python/src/core_types.h"

namespace firstfault::python {
namespace {

std::vector<std::string> strings(const std::vector<nb::bytes>& from) {
  std::vector<std::string> out;
  for (const nb::bytes& one : from) out.emplace_back(one.c_str(), one.size());
  return out;
}

int main(const std::vector<nb::bytes>& arguments, const std::vector<nb::bytes>& python, const nb::bytes& bootstrap) {
  const auto words = strings(arguments);
  const cli::Python host{strings(python), std::string(bootstrap.c_str(), bootstrap.size())};
  const nb::gil_scoped_release released;
  return cli::run_on_standard_output(words, host);
}

std::string verdict(const std::string& path) { return cli::to_text(cli::load(path).verdict); }

}  // namespace

void bind_cli(nb::module_& m) {
  m.def("main", &main, nb::arg("arguments"), nb::arg("python"), nb::arg("bootstrap"),
        "Run the native program on this process's standard output; the exit code. `run` replaces the process.");
  m.def("verdict", &verdict, nb::arg("path"), nb::call_guard<nb::gil_scoped_release>(),
        "One line on a run file: 'no fault found', 'fault in step 37: learning rate too high [...]'.");
}

}  // namespace firstfault::python
