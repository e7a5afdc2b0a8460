// Which process is recording, so that a reader can tell whether it is still there.
#pragma once

#include <cstdint>
#include <string>

namespace firstfault::record {

struct ProcessIdentity {
  std::string host;
  std::string boot;           ///< random id of this boot of the kernel
  std::string pid_namespace;  ///< pids of another container mean nothing here
  std::int64_t pid = 0;
  std::int64_t start = 0;  ///< clock ticks after boot: a pid is used again, the pair is not
};

ProcessIdentity current_process();

enum class Alive : std::uint8_t { yes, no, unknown };

/// `unknown` for another machine's or container's process.
Alive is_alive(const ProcessIdentity& process);

}  // namespace firstfault::record
