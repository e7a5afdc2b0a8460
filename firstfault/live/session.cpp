// The facade: one trace at a time, its life cycle, and the way from recorded facts to explained answers.
#include "firstfault/live/session.h"

#include <atomic>
#include <mutex>
#include <ostream>

#include <ATen/record_function.h>

#include "firstfault/base/error.h"
#include "firstfault/live/intercept/native_places.h"
#include "firstfault/live/intercept/observer.h"
#include "firstfault/live/module_names.h"
#include "firstfault/live/observation.h"
#include "firstfault/live/trace/tracer.h"
#include "firstfault/present/text.h"
#include "firstfault/reason/engine.h"

namespace firstfault {
namespace {

trace::TracerOptions tracer_options(const TraceOptions& options) {
  return {options.forward, options.backward, options.optimizer, options.max_ops};
}

}  // namespace

struct Trace::State {
  TraceOptions options;
  bool enabled = !switched_off_by_environment();
  std::atomic<bool> running = false;
  ModuleNames names;             // paths are only ever added to
  std::size_t watched_from = 0;  // those before are no longer watched
  trace::Tracer tracer;

  State(const TraceOptions& o, std::unique_ptr<intercept::Places> places)
      : options(o), tracer(tracer_options(o), std::move(places)) {}
};

Trace::Trace(TraceOptions options) : Trace(options, intercept::make_native_places(options.stacks), true) {}

Trace::Trace(TraceOptions options, std::unique_ptr<intercept::Places> places, bool start_now)
    : state_(std::make_unique<State>(options, std::move(places))) {
  if (start_now) start();
}

Trace::~Trace() { stop(); }

bool Trace::running() const noexcept { return state_->running; }

void Trace::start() {
  if (!state_->enabled) return;
  const std::lock_guard lock(observation_mutex());
  take_observation(this, "a trace");
  state_->tracer.reset();
  intercept::start_observing(state_->tracer);
  state_->running = true;
}

void Trace::stop() {
  if (!state_->running.exchange(false)) return;
  const std::lock_guard lock(observation_mutex());
  if (!release_observation(this)) return;
  intercept::stop_observing();
  state_->tracer.finish();
}

void Trace::pause() { state_->tracer.pause(true); }
void Trace::resume() { state_->tracer.pause(false); }

void Trace::watch(ModuleNames fresh) {
  const std::lock_guard lock(observation_mutex());
  ModuleNames& names = state_->names;
  append(names, std::move(fresh), state_->watched_from);
  state_->tracer.set_names(names.paths, names.tensors);
  intercept::set_module_paths(names.paths);
}

void Trace::unwatch() {
  const std::lock_guard lock(observation_mutex());
  state_->watched_from = state_->names.paths.size();  // what was recorded keeps their names
  state_->names.tensors.clear();
  state_->tracer.set_names(state_->names.paths, {});
  intercept::set_module_paths({});
}

bool Trace::has_issue(const at::Tensor& tensor) {
  if (!state_->enabled) return false;
  return diagnose(tensor).counts.total() > 0;
}

Diagnosis Trace::diagnose(const at::Tensor& tensor) {
  if (!state_->enabled) {
    Diagnosis none;
    none.note = "firstfault is switched off by FIRSTFAULT=0 in the environment: nothing was observed";
    return none;
  }
  const at::DisableRecordFunctionGuard unobserved;
  auto diagnosis = state_->tracer.diagnose(tensor, !state_->running);
  if (!diagnosis) {
    throw Error(
        "firstfault: diagnose: no op that this trace observed produced this tensor; it was made before start() "
        "or after stop(), on a device or in a layout that cannot be inspected, or so many ops ago that its "
        "record was dropped. Ask about a tensor made while tracing, or watch() the module that owns it",
        Error::Kind::untracked);
  }
  reason::explain(*diagnosis);
  return *std::move(diagnosis);
}

std::vector<Origin> Trace::origins() { return run().origins; }

Run Trace::run() {
  if (!state_->enabled) return {};
  const at::DisableRecordFunctionGuard unobserved;
  Run run = state_->tracer.run();
  reason::explain(run);
  return run;
}

ModuleScope::ModuleScope(const std::string& path) { intercept::module_scopes().push_back(path); }
ModuleScope::~ModuleScope() { intercept::module_scopes().pop_back(); }

std::ostream& operator<<(std::ostream& out, const Origin& origin) { return out << present::to_text(origin); }
std::ostream& operator<<(std::ostream& out, const Diagnosis& diagnosis) { return out << present::to_text(diagnosis); }
std::ostream& operator<<(std::ostream& out, const Run& run) { return out << present::to_text(run); }

}  // namespace firstfault
