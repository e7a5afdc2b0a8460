// One observer at a time in a process.
#pragma once

#include <mutex>

namespace firstfault {

/// Guards the two below, and the start and end of whatever is observed.
std::mutex& observation_mutex();
/// `who` observes from now on. Error where somebody does already; `what` names who asks ("a trace", "a watch"). The
/// mutex is held.
void take_observation(const void* who, const char* what);
/// False: `who` did not observe, or this is a child made by fork(). The mutex is held.
bool release_observation(const void* who);

/// FIRSTFAULT=0 in the environment.
bool switched_off_by_environment();

}  // namespace firstfault
