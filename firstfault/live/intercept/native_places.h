// Places of a C++ program: module by parameter or ModuleScope, stack by unwinding.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "firstfault/live/intercept/place.h"

namespace firstfault::intercept {

/// `stacks` false: only modules. Stacks are resolved with inlined frames expanded; frames of LibTorch and of this
/// library are left out.
std::unique_ptr<Places> make_native_places(bool stacks);

/// The scopes that ModuleScope opened on this thread, innermost last.
std::vector<std::string>& module_scopes();
/// Module index by full path, for scopes; set when what is watched changes.
void set_module_paths(const std::vector<std::string>& paths);

}  // namespace firstfault::intercept
