// Names of a C++ module tree. The one file that needs torch::nn.
#include <torch/nn/module.h>

#include "firstfault/base/error.h"
#include "firstfault/live/session.h"

namespace firstfault {
namespace {

std::string joined(const std::string& prefix, const std::string& name) {
  if (prefix.empty() || name.empty()) return prefix + name;
  return prefix + "." + name;
}

void add_tensors(std::vector<trace::NamedTensor>& into, const torch::nn::Module& module, const std::string& path,
                 std::int32_t index) {
  for (const auto& item : module.named_parameters(/*recurse=*/false)) {
    into.push_back({item.value(), joined(path, item.key()), TensorRole::parameter, index});
  }
  for (const auto& item : module.named_buffers(/*recurse=*/false)) {
    into.push_back({item.value(), joined(path, item.key()), TensorRole::buffer, index});
  }
}

}  // namespace

void Trace::watch(const torch::nn::Module& module, const std::string& name) {
  std::vector<std::string> paths{name};
  std::vector<trace::NamedTensor> tensors;
  add_tensors(tensors, module, name, 0);
  for (const auto& item : module.named_modules(/*name_prefix=*/std::string(), /*include_self=*/false)) {
    const auto index = static_cast<std::int32_t>(paths.size());
    paths.push_back(joined(name, item.key()));
    add_tensors(tensors, *item.value(), paths.back(), index);
  }
  watch(std::move(paths), std::move(tensors));
}

}  // namespace firstfault
