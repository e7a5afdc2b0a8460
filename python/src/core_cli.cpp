// The program `firstfault`, for the Python package's entry.
#include <utility>

#include <nanobind/stl/pair.h>

#include "cli/columns.h"
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

std::vector<std::pair<std::string, std::string>> columns(const std::string& what) {
  const Run none;
  const cli::Table table = cli::table_of(none, what);
  std::vector<std::pair<std::string, std::string>> out;
  for (std::size_t i = 0; i < table.columns.size(); ++i) out.emplace_back(table.columns[i], table.types[i]);
  return out;
}

}  // namespace

void bind_cli(nb::module_& m) {
  m.def("main", &main, nb::arg("arguments"), nb::arg("python"), nb::arg("bootstrap"),
        "Run the native program on this process's standard output; the exit code. `run` replaces the process.");
  m.def("verdict", &verdict, nb::arg("path"), nb::call_guard<nb::gil_scoped_release>(),
        "One line on a run file: 'no fault found', 'fault in step 37: learning rate too high [...]'.");
  m.def("columns", &columns, nb::arg("what"),
        "Name and type ('integer', 'number', 'bool', 'text') of what `export --what` writes.");
}

}  // namespace firstfault::python
