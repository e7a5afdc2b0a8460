// info: version and libraries of this program. The Python package's `info` says whether tracing works there.
#include <dlfcn.h>

#include <fmt/format.h>

#include "cli/command.h"
#include "cli/launch.h"
#include "firstfault/base/names.h"

namespace firstfault::cli {
namespace {

int info(const Context& context) {
  context.out << "firstfault " FIRSTFAULT_VERSION " (the native program; `python -m firstfault info` says more)\n";
  context.out << fmt::format("libraries  {}\n", printable(library_folder()));
  return kDone;
}

}  // namespace

Action declare_info(Options&) {
  return [](const Context& context) { return info(context); };
}

}  // namespace firstfault::cli
