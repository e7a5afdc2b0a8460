#include "firstfault/live/observation.h"

#include <cstdlib>
#include <cstring>
#include <string>

#include "firstfault/base/error.h"
#include "firstfault/live/intercept/observer.h"

namespace firstfault {
namespace {

struct Owner {
  const void* who = nullptr;
  const char* what = "";
};

Owner& owner() {
  static Owner instance;
  return instance;
}

}  // namespace

std::mutex& observation_mutex() {
  static std::mutex& instance = *new std::mutex;
  return instance;
}

void take_observation(const void* who, const char* what) {
  Owner& current = owner();
  if (intercept::is_forked_child()) current = {};  // what a fork left running is the parent's
  if (current.who) {
    const bool same = std::strcmp(current.what, what) == 0;
    const std::string other = current.who == who ? "this" + std::string(what).substr(1)
                              : same             ? "another" + std::string(what).substr(1)
                                                 : std::string(current.what);
    throw Error("firstfault: start of " + std::string(what) + ": " + other +
                " is running in this process, and they do not nest; stop it first");
  }
  current = {who, what};
}

bool release_observation(const void* who) {
  if (owner().who != who) return false;
  owner() = {};
  return !intercept::is_forked_child();
}

bool switched_off_by_environment() {
  const char* value = std::getenv("FIRSTFAULT");
  return value && std::strcmp(value, "0") == 0;
}

}  // namespace firstfault
