// What the benchmarks need of LibTorch and Python does not offer: callbacks that do nothing, and a switch per thread.
#include <memory>

#include <ATen/record_function.h>
#include <nanobind/nanobind.h>

namespace {

at::CallbackHandle handles[2] = {};

std::unique_ptr<at::ObserverContext> nothing(const at::RecordFunction&) { return nullptr; }
void nothing_more(const at::RecordFunction&, at::ObserverContext*) {}

void start_empty() {
  using Callback = at::RecordFunctionCallback;
  if (handles[0]) return;
  handles[0] = at::addGlobalCallback(
      Callback(nothing, nothing_more).needsInputs(true).needsOutputs(true).scopes({at::RecordScope::FUNCTION}));
  handles[1] = at::addGlobalCallback(Callback(nothing, nothing_more).scopes({at::RecordScope::BACKWARD_FUNCTION}));
}

void stop_empty() {
  for (auto& handle : handles) {
    if (handle) at::removeCallback(handle);
    handle = {};
  }
}

}  // namespace

NB_MODULE(_floor, module) {
  module.def("start_empty", start_empty, "Register callbacks as a trace does, which do nothing.");
  module.def("stop_empty", stop_empty, "Remove them.");
  module.def(
      "set_recording", [](bool on) { at::enableRecordFunction(on); },
      "Whether any callback is called for the ops of this thread.");
}
