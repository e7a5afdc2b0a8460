// What was found out about a run after it had ended.
#pragma once

#include <string>
#include <vector>

#include "firstfault/events/fact.h"

namespace firstfault {

/// Adds them to a run file, all or none. Throws firstfault::Error, one sentence with the path, for what is no run file,
/// one that is still being recorded or cannot be written to. May be called from any thread.
void add_facts(const std::string& path, const std::vector<Fact>& facts);

}  // namespace firstfault
