// firstfault._live.Replayer as other files of the module see it.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <utility>
#include <vector>

#include "firstfault/live/guard/replay.h"
#include "python/src/live_tensor.h"
#include "python/src/live_types.h"
#include "python/src/live_watch.h"

namespace firstfault::python {

namespace nb = nanobind;

// None: an undefined tensor.
inline std::vector<at::Tensor> tensors_of(const nb::handle& list) {
  std::vector<at::Tensor> tensors;
  for (const nb::handle item : list) tensors.push_back(item.is_none() ? at::Tensor() : nb::cast<at::Tensor>(item));
  return tensors;
}

inline nb::list listed(const std::vector<at::Tensor>& tensors) {
  nb::list list;
  for (const at::Tensor& tensor : tensors) list.append(tensor.defined() ? python_tensor(tensor) : nb::none());
  return list;
}

// The program's side of a replay, as an object with the methods restore(), run(batch, write), use_compiled(on) and
// resume(). C++ calls it without the interpreter's lock.
class PythonProgram final : public guard::ReplayProgram {
 public:
  explicit PythonProgram(nb::object object) : object_(std::move(object)) {}
  ~PythonProgram() override {
    const nb::gil_scoped_acquire locked;
    object_.reset();
  }
  void restore() override {
    const nb::gil_scoped_acquire locked;
    object_.attr("restore")();
  }
  at::Tensor run(const guard::BatchTensors& batch, bool write) override {
    const nb::gil_scoped_acquire locked;
    const nb::object loss = object_.attr("run")(listed(batch), write);
    return loss.is_none() ? at::Tensor() : nb::cast<at::Tensor>(loss);
  }
  bool use_compiled(bool on) override {
    const nb::gil_scoped_acquire locked;
    return nb::cast<bool>(object_.attr("use_compiled")(on));
  }
  void resume() override {
    const nb::gil_scoped_acquire locked;
    object_.attr("resume")();
  }

 private:
  nb::object object_;
};

struct BoundReplayer {
  guard::StepState state;
  PythonProgram program;
  std::optional<guard::Replayer> replayer;

  BoundReplayer(nb::object object, guard::StepState&& began, BoundWatch* watch, bool write)
      : state(std::move(began)), program(std::move(object)) {
    guard::Replayer::Observe observe = [watch](const std::function<void()>& body) {
      if (watch) return watch->observer->aside(body);
      body();
      return Run();
    };
    replayer.emplace(state, program, std::move(observe), write);
  }
  void close() {
    const nb::gil_scoped_release unlocked;
    replayer.reset();
  }
  ~BoundReplayer() { close(); }
  guard::Replayer& open() {
    if (!replayer) throw nb::value_error("firstfault: this replayer is closed: its step is over");
    return *replayer;
  }
};

}  // namespace firstfault::python
