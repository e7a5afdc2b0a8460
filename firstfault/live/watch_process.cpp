// For a program that was not written with firstfault: watches all of it until it ends.
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "firstfault/live/watch.h"

namespace firstfault {
namespace {

Watch* watched_process = nullptr;

}  // namespace
}  // namespace firstfault

/// 0: recording. Called once, by the preload shim, before main(). Modules and parameters have no names here; lines of
/// source have, where the program was compiled with -g. The file is closed when the process exits.
extern "C" [[gnu::visibility("default")]] int firstfault_watch_process(const char* run_file) noexcept {
  try {
    firstfault::watched_process = new firstfault::Watch(firstfault::WatchOptions{.run_file = run_file});
    std::atexit([] { firstfault::watched_process->close(); });
    return firstfault::watched_process->running() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
