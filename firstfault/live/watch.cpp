// The facade of a watched run: its life cycle, its names, and the way from the record to explained answers.
#include "firstfault/live/watch.h"

#include <map>
#include <ostream>

#include "firstfault/base/error.h"
#include "firstfault/live/guard/clip.h"
#include "firstfault/live/intercept/native_places.h"
#include "firstfault/live/module_names.h"
#include "firstfault/live/observation.h"
#include "firstfault/live/watch/environment.h"
#include "firstfault/live/watch/monitor.h"
#include "firstfault/present/text.h"
#include "firstfault/reason/engine.h"

namespace firstfault {
namespace {

watch::Level level_of(const std::string& name) {
  if (name.empty() || name == "ops") return watch::Level::ops;
  if (name == "modules") return watch::Level::modules;
  if (name == "gradients") return watch::Level::gradients;
  throw Error("firstfault: watch: level is '" + name + "'; it takes gradients, modules or ops", Error::Kind::bad_value);
}

watch::MonitorOptions monitor_options(const WatchOptions& options) {
  watch::MonitorOptions result;
  result.level = level_of(options.level);
  result.thresholds = {options.threshold_vanishing, options.threshold_exploding};
  if (!switched_off_by_environment()) result.run_file = options.run_file;
  return result;
}

}  // namespace

// Clips by this library's own kernels, which no op shows.
class ClipEar final : public ClipListener {
 public:
  explicit ClipEar(watch::Monitor& monitor) : monitor_(monitor) { add_clip_listener(*this); }
  ~ClipEar() override { remove_clip_listener(*this); }
  void heard(const ClipRecord& record, at::TensorList gradients) override {
    if (record.pending() || !record.clipped()) return;
    for (const at::Tensor& gradient : gradients) {
      if (gradient.defined()) return monitor_.clipped(record.norm, record.coefficient, gradient);
    }
  }

 private:
  watch::Monitor& monitor_;
};

struct Watch::State {
  bool enabled = !switched_off_by_environment();
  watch::MonitorOptions options;
  watch::Monitor monitor;
  ClipEar ear{monitor};
  Setup setup = watch::environment();
  ModuleNames names;
  int optimizers = 0;
  std::map<const void*, int> numbers;  ///< of optimizer objects; compared, never followed
  std::map<int, std::vector<std::size_t>> sizes;

  State(const WatchOptions& o, std::unique_ptr<intercept::Places> places)
      : options(monitor_options(o)), monitor(options, std::move(places)) {
    constexpr const char* levels[] = {"gradients", "modules", "ops"};
    setup.level = levels[static_cast<int>(options.level)];
  }
  /// Before the start there is nobody to tell.
  void publish() {
    if (monitor.running()) monitor.set_setup(setup);
  }
  bool observes() const { return options.level != watch::Level::gradients; }
};

Watch::Watch(WatchOptions options) : Watch(std::move(options), intercept::make_native_places(true), true) {}

Watch::Watch(WatchOptions options, std::unique_ptr<intercept::Places> places, bool start_now)
    : state_(std::make_unique<State>(options, std::move(places))) {
  if (start_now) start();
}

Watch::~Watch() { close(); }

void Watch::start() {
  if (!state_->enabled || state_->monitor.running()) return;
  const std::lock_guard lock(observation_mutex());
  if (state_->observes()) take_observation(this, "a watch");
  state_->monitor.set_setup(state_->setup);
  state_->monitor.start();
}

void Watch::close(RunState state) {
  const std::lock_guard lock(observation_mutex());
  if (state_->observes()) release_observation(this);
  state_->monitor.close(state);
}

bool Watch::running() const noexcept { return state_->monitor.running(); }

void Watch::watch(ModuleNames fresh) {
  const std::lock_guard lock(observation_mutex());
  ModuleNames& names = state_->names;
  append(names, std::move(fresh));
  state_->setup.modules = names.modules;
  state_->monitor.set_names(names.paths, names.tensors);
  intercept::set_module_paths(names.paths);
  state_->publish();
}

int Watch::hold(const std::vector<at::Tensor>& tensors, OptimizerInfo info) {
  const std::lock_guard lock(observation_mutex());
  const int number = state_->optimizers++;
  std::vector<watch::HeldTensor> held;
  for (const auto& tensor : tensors) held.push_back({tensor, number});
  state_->setup.optimizers.push_back(std::move(info));
  state_->monitor.hold(held);
  state_->publish();
  return number;
}

int Watch::remember(const void* optimizer, int number) {
  const std::lock_guard lock(observation_mutex());
  return state_->numbers[optimizer] = number;
}

std::vector<std::size_t>& Watch::group_sizes(int optimizer) { return state_->sizes[optimizer]; }

int Watch::recall(const void* optimizer) const {
  const std::lock_guard lock(observation_mutex());
  const auto known = state_->numbers.find(optimizer);
  return known == state_->numbers.end() ? -1 : known->second;
}

void Watch::hold_more(int optimizer, const std::vector<at::Tensor>& tensors) {
  const std::lock_guard lock(observation_mutex());
  std::vector<watch::HeldTensor> held;
  for (const auto& tensor : tensors) held.push_back({tensor, optimizer});
  state_->monitor.hold(held);
}

void Watch::describe(std::vector<std::string> command, const std::map<std::string, std::string>& versions) {
  const std::lock_guard lock(observation_mutex());
  if (!command.empty()) state_->setup.command = std::move(command);
  for (const auto& [what, version] : versions) state_->setup.versions[what] = version;
  state_->publish();
}

void Watch::before_step(int optimizer, const std::vector<watch::GroupNumbers>& groups, bool ranged) {
  state_->monitor.before_step(optimizer, groups, ranged);
}

void Watch::after_step(int optimizer, const std::vector<watch::GroupNumbers>& groups, bool ranged) {
  state_->monitor.after_step(optimizer, groups, ranged);
}

void Watch::scaled(double scale, bool passed_over) { state_->monitor.scaled(scale, passed_over); }

void Watch::loss(double value) { state_->monitor.loss(value); }

void Watch::log(const std::string& name, double value) { state_->monitor.log(name, value); }

std::int64_t Watch::steps() { return state_->monitor.steps(); }

void Watch::refused() { state_->monitor.refused(); }

void Watch::rolled_back() { state_->monitor.rolled_back(); }

void Watch::learned(std::int64_t step, std::vector<Origin> origins, const std::vector<Experiment>& experiments) {
  for (Origin& origin : origins) {
    origin.step = step;
    origin.replayed = true;
  }
  if (state_->enabled) state_->monitor.learned(std::move(origins), experiments);
}

std::optional<double> Watch::pending_loss() { return state_->monitor.pending_loss(); }

bool Watch::wrote_finite(const at::Tensor& tensor) const { return state_->monitor.wrote_finite(tensor); }

void Watch::acted(const GuardAction& action) { state_->monitor.acted(action); }

std::optional<GuardAction> Watch::measured(const ClipRecord& clip) {
  GuardAction action;
  action.step = steps();
  action.norm = clip.norm, action.limit = clip.limit, action.coefficient = clip.coefficient;
  action.angle = clip.angle, action.length = clip.step;
  for (const ClipShare& share : clip.largest) action.largest.push_back({share.name, share.share});
  state_->monitor.measured(action, clip.clipped());
  return clip.clipped() ? std::optional(std::move(action)) : std::nullopt;
}

void Watch::begin_aside() {
  if (!state_->enabled) return;
  const std::lock_guard lock(observation_mutex());
  if (!state_->observes() || !running()) take_observation(&state_->monitor, "a replay");
  state_->monitor.begin_aside();
}

Run Watch::end_aside(bool died) {
  if (!state_->enabled) return {};
  Run run;
  {
    const std::lock_guard lock(observation_mutex());
    run = state_->monitor.end_aside(died);
    release_observation(&state_->monitor);
  }
  const at::DisableRecordFunctionGuard unobserved;
  reason::explain(run);
  return run;
}

void Watch::pause() {
  const std::lock_guard lock(observation_mutex());
  state_->monitor.pause();
  release_observation(this);
}

void Watch::resume() {
  const std::lock_guard lock(observation_mutex());
  state_->monitor.resume();
  if (!running()) return;
  if (state_->observes()) take_observation(this, "a watch");
  intercept::set_module_paths(state_->names.paths);  // others had names of their own
}

Run Watch::aside(const std::function<void()>& body) {
  begin_aside();
  try {
    body();
  } catch (...) {
    end_aside(true);
    throw;
  }
  return end_aside();
}

Run Watch::run() {
  if (!state_->enabled) return {};
  const at::DisableRecordFunctionGuard unobserved;
  Run run = state_->monitor.run();
  reason::explain(run);
  return run;
}

std::vector<Hypothesis> Watch::explain() { return reason::hypotheses(run()); }

std::vector<Transition> Watch::events() { return run().transitions; }

std::string Watch::path() const { return state_->monitor.path(); }

std::ostream& operator<<(std::ostream& out, const Hypothesis& hypothesis) {
  return out << present::to_text(hypothesis);
}

}  // namespace firstfault
