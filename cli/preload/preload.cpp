// Loaded by LD_PRELOAD into a program and its children; where LibTorch 2.13 is in the process, it starts the watch.
// Links libc alone: the program's own LibTorch and C++ library must not meet another one through this.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <initializer_list>

namespace {

constexpr const char* kAddGlobalCallback = "_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE";
constexpr unsigned kMajor = 2, kMinor = 13;
constexpr size_t kLongestPath = 4096;

const char* variable(const char* name) {
  const char* value = getenv(name);
  return value ? value : "";
}

bool quiet = false;

void say(const char* what, const char* detail = "") {
  if (!quiet) dprintf(STDERR_FILENO, "firstfault: %s%s\n", what, detail);
}

/// Takes this library out of LD_PRELOAD, and our own variables out of the environment: what the program starts in its
/// turn runs as without us.
void restore_environment(const char* self) {
  for (const char* name : {"FIRSTFAULT_RUN_FILE", "FIRSTFAULT_RUN_LEVEL", "FIRSTFAULT_RUN_QUIET"}) unsetenv(name);
  const char* preload = variable("LD_PRELOAD");
  const size_t length = strlen(self);
  const char* at = strstr(preload, self);
  if (!at) return;
  const char* after = at + length;
  if (*after == ':' || *after == ' ') ++after;
  char* rest = static_cast<char*>(malloc(strlen(preload) + 1));
  if (!rest) return;
  memcpy(rest, preload, static_cast<size_t>(at - preload));
  strcpy(rest + (at - preload), after);
  *rest ? setenv("LD_PRELOAD", rest, 1) : unsetenv("LD_PRELOAD");
  free(rest);
}

/// "DIR/libfirstfault_live.so" beside this library.
bool live_library(const char* self, char* path) {
  const char* slash = strrchr(self, '/');
  const int folder = slash ? static_cast<int>(slash - self) : 0;
  const int length = snprintf(path, kLongestPath, "%.*s/libfirstfault_live.so", folder, self);
  return slash && length > 0 && static_cast<size_t>(length) < kLongestPath;
}

/// Makes the folder `runs`; where the file is there already (the second program of `sh -c 'a; b'`), "-<process>" goes
/// into its name.
bool run_file(const char* wanted, char* path) {
  snprintf(path, kLongestPath, "%s", wanted);
  if (char* slash = strrchr(path, '/'); slash && slash != path) {
    *slash = '\0';
    mkdir(path, 0777);
    *slash = '/';
  }
  if (access(path, F_OK) != 0) return true;
  const char* dot = strrchr(wanted, '.');
  const int stem = static_cast<int>(dot ? dot - wanted : static_cast<long>(strlen(wanted)));
  const int length = snprintf(path, kLongestPath, "%.*s-%d%s", stem, wanted, getpid(), dot ? dot : "");
  return length > 0 && static_cast<size_t>(length) < kLongestPath;
}

/// Encoded as TORCH_ABI_VERSION in torch/headeronly/version.h; LibTorch has the function since 2.9.
bool right_version() {
  const auto version = reinterpret_cast<std::uint64_t (*)()>(dlsym(RTLD_DEFAULT, "aoti_torch_abi_version"));
  const std::uint64_t have = version ? version() : 0;
  if ((have >> 56) == kMajor && ((have >> 48) & 0xff) == kMinor) return true;
  char text[96] = "an older one than 2.9";
  if (version)
    snprintf(text, sizeof text, "%u.%u", static_cast<unsigned>(have >> 56), static_cast<unsigned>(have >> 48) & 0xff);
  say("the program runs unwatched: this firstfault works with LibTorch 2.13, and the program's is ", text);
  return false;
}

void start_watch(const char* self, const char* wanted) {
  static char live[kLongestPath], file[kLongestPath];
  if (!right_version() || !live_library(self, live) || !run_file(wanted, file)) return;
  void* library = dlopen(live, RTLD_NOW | RTLD_LOCAL);
  if (!library) return say("the program runs unwatched: ", dlerror());
  const auto watch = reinterpret_cast<int (*)(const char*)>(dlsym(library, "firstfault_watch_process"));
  if (!watch)
    return say("the program runs unwatched: libfirstfault_live.so is of another version, without ",
               "firstfault_watch_process");
  if (watch(file) != 0)  // it may read FIRSTFAULT_RUN_LEVEL
    return say("the program runs unwatched");
  say("recording; read it with: firstfault show ", file);
}

__attribute__((constructor)) void begin() {
  static char wanted[kLongestPath];
  Dl_info info;
  if (!*variable("FIRSTFAULT_RUN_FILE") || strcmp(variable("FIRSTFAULT"), "0") == 0) return;
  if (!dlsym(RTLD_DEFAULT, kAddGlobalCallback)) return;  // a shell, say: its children inherit the wish
  if (!dladdr(reinterpret_cast<void*>(&begin), &info) || !info.dli_fname) return;
  snprintf(wanted, sizeof wanted, "%s", variable("FIRSTFAULT_RUN_FILE"));
  quiet = *variable("FIRSTFAULT_RUN_QUIET") != '\0';
  start_watch(info.dli_fname, wanted);
  restore_environment(info.dli_fname);
}

}  // namespace
