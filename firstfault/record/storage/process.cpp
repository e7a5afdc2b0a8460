// From /proc: see proc(5).
#include "firstfault/record/storage/process.h"

#include <array>
#include <cerrno>
#include <climits>
#include <fstream>
#include <sstream>

#include <unistd.h>

namespace firstfault::record {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

struct Stat {
  bool exists = false;
  char state = '?';
  std::int64_t start = 0;
};

Stat stat_of(std::int64_t pid) {
  const std::string line = first_line("/proc/" + std::to_string(pid) + "/stat");
  // The second field, the program's name, is in parentheses and may hold anything.
  const std::size_t end = line.rfind(')');
  if (end == std::string::npos) return {};
  std::istringstream fields(line.substr(end + 1));
  Stat stat{.exists = true};
  fields >> stat.state;
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  fields >> stat.start;
  return stat;
}

std::string pid_namespace() {
  std::array<char, 128> text{};
  const ssize_t length = readlink("/proc/self/ns/pid", text.data(), text.size());
  return length > 0 ? std::string(text.data(), static_cast<std::size_t>(length)) : "";
}

}  // namespace

ProcessIdentity current_process() {
  std::array<char, HOST_NAME_MAX + 1> host{};
  gethostname(host.data(), host.size() - 1);
  const std::int64_t pid = getpid();
  return {host.data(), first_line("/proc/sys/kernel/random/boot_id"), pid_namespace(), pid, stat_of(pid).start};
}

Alive is_alive(const ProcessIdentity& process) {
  const ProcessIdentity here = current_process();
  if (process.boot.empty() || here.boot.empty() || process.pid <= 0) return Alive::unknown;
  if (process.boot != here.boot) return process.host == here.host ? Alive::no : Alive::unknown;
  if (process.pid_namespace != here.pid_namespace) return Alive::unknown;
  const Stat stat = stat_of(process.pid);
  const bool ended = !stat.exists || stat.state == 'Z' || stat.state == 'X' || stat.start != process.start;
  return ended ? Alive::no : Alive::yes;
}

}  // namespace firstfault::record
