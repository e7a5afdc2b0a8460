// What can be read off the process and its machine.
#pragma once

#include "firstfault/events/setup.h"

namespace firstfault::watch {

/// Command line, folder, git commit of that folder, host, start time, version of LibTorch. Runs no program.
Setup environment();

}  // namespace firstfault::watch
