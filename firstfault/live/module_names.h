// Names of a C++ module tree, for Trace and Watch alike.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "firstfault/events/setup.h"
#include "firstfault/live/trace/tensor_names.h"

namespace torch::nn {
class Module;
}

namespace firstfault {

struct ModuleNames {
  std::vector<std::string> paths;  ///< "model", "model.fc", …
  std::vector<trace::NamedTensor> tensors;
  std::vector<ModuleInfo> modules;
};

/// Adds `fresh` to `known`, with its tensors' modules counted on. Error when its first path is one of those known from
/// index `active` on.
void append(ModuleNames& known, ModuleNames fresh, std::size_t active = 0);

ModuleNames names_of(const torch::nn::Module& module, const std::string& name);

}  // namespace firstfault
