#include "firstfault/live/guard/random_state.h"

#include <mutex>

#include <ATen/Context.h>
#include <ATen/record_function.h>

#include "firstfault/live/guard/copies.h"

namespace firstfault::guard {

RandomState RandomState::now(const std::vector<at::Generator>& others) {
  const at::DisableRecordFunctionGuard unobserved;
  RandomState result;
  auto& context = at::globalContext();
  result.generators_.push_back(context.defaultGenerator(at::kCPU));
  if (context.hasCUDA()) {
    const auto& hooks = at::detail::getCUDAHooks();
    for (int device = 0; device < hooks.deviceCount(); ++device) {
      if (!hooks.hasPrimaryContext(static_cast<c10::DeviceIndex>(device))) continue;
      result.generators_.push_back(
          context.defaultGenerator(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device))));
    }
  }
  result.generators_.insert(result.generators_.end(), others.begin(), others.end());
  for (at::Generator& generator : result.generators_) {
    const std::lock_guard lock(generator.mutex());
    result.states_.push_back(generator.get_state());
  }
  return result;
}

void RandomState::restore() const {
  const at::DisableRecordFunctionGuard unobserved;
  for (std::size_t i = 0; i < generators_.size(); ++i) {
    at::Generator generator = generators_[i];
    const std::lock_guard lock(generator.mutex());
    generator.set_state(states_[i]);
  }
}

bool RandomState::operator==(const RandomState& other) const {
  if (generators_.size() != other.generators_.size()) return false;
  return bits_of(states_) == bits_of(other.states_);
}

}  // namespace firstfault::guard
