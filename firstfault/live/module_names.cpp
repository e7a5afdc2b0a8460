// The one file that needs torch::nn.
#include "firstfault/live/module_names.h"

#include <algorithm>

#include <torch/nn/module.h>

#include "firstfault/base/error.h"
#include "firstfault/live/session.h"
#include "firstfault/live/watch.h"

namespace firstfault {
namespace {

std::string joined(const std::string& prefix, const std::string& name) {
  if (prefix.empty() || name.empty()) return prefix + name;
  return prefix + "." + name;
}

// "torch::nn::LinearImpl" -> "Linear".
std::string type_of(const torch::nn::Module& module) {
  std::string name = module.name();
  if (const auto colon = name.rfind("::"); colon != std::string::npos) name.erase(0, colon + 2);
  if (name.size() > 4 && name.ends_with("Impl")) name.resize(name.size() - 4);
  return name;
}

void add(ModuleNames& into, const torch::nn::Module& module, const std::string& path) {
  const auto index = static_cast<std::int32_t>(into.paths.size());
  into.paths.push_back(path);
  ModuleInfo info{.path = path, .type = type_of(module)};
  for (const auto& item : module.named_parameters(/*recurse=*/false)) {
    into.tensors.push_back({item.value(), joined(path, item.key()), TensorRole::parameter, index});
    info.parameters += item.value().numel();
  }
  for (const auto& item : module.named_buffers(/*recurse=*/false)) {
    into.tensors.push_back({item.value(), joined(path, item.key()), TensorRole::buffer, index});
  }
  into.modules.push_back(std::move(info));
}

}  // namespace

ModuleNames names_of(const torch::nn::Module& module, const std::string& name) {
  ModuleNames names;
  add(names, module, name);
  for (const auto& item : module.named_modules(/*name_prefix=*/std::string(), /*include_self=*/false)) {
    add(names, *item.value(), joined(name, item.key()));
  }
  return names;
}

void append(ModuleNames& known, ModuleNames fresh, std::size_t active) {
  const auto first = known.paths.begin() + static_cast<std::ptrdiff_t>(active);
  if (!fresh.paths.empty() && std::find(first, known.paths.end(), fresh.paths.front()) != known.paths.end()) {
    throw Error(
        "firstfault: watch: the name '" + fresh.paths.front() + "' is taken by another module; pass another name",
        Error::Kind::bad_value);
  }
  const auto offset = static_cast<std::int32_t>(known.paths.size());
  for (auto& tensor : fresh.tensors) {
    if (tensor.module >= 0) tensor.module += offset;
    known.tensors.push_back(std::move(tensor));
  }
  known.paths.insert(known.paths.end(), fresh.paths.begin(), fresh.paths.end());
  known.modules.insert(known.modules.end(), fresh.modules.begin(), fresh.modules.end());
}

void Trace::watch(const torch::nn::Module& module, const std::string& name) { watch(names_of(module, name)); }

void Watch::watch(const torch::nn::Module& module, const std::string& name) { watch(names_of(module, name)); }

}  // namespace firstfault
