// The monitor beside a guard: steps that were refused, and replays that are no part of the run.
#include <memory>
#include <mutex>
#include <utility>

#include <unistd.h>

#include "firstfault/guard/limits.h"
#include "firstfault/live/watch/monitor.h"

namespace firstfault::watch {
namespace {

class BorrowedPlaces final : public intercept::Places {
 public:
  explicit BorrowedPlaces(intercept::Places& owner) : owner_(owner) {}
  intercept::PlaceId here(std::int32_t owner, bool with_stack) override { return owner_.here(owner, with_stack); }
  std::int32_t module_of(intercept::PlaceId place) const override { return owner_.module_of(place); }
  std::vector<SourceFrame> frames_of(intercept::PlaceId place) override { return owner_.frames_of(place); }

 private:
  intercept::Places& owner_;
};

}  // namespace

std::int64_t Monitor::steps() {
  const std::lock_guard lock(mutex_);
  return step_;
}

void Monitor::refused() {
  const std::lock_guard lock(mutex_);
  row_.skipped = row_open_ = true;
}

void Monitor::rolled_back() {
  const std::lock_guard lock(mutex_);
  states_.clear();
}

void Monitor::learned(std::vector<Origin> origins, const std::vector<Experiment>& experiments) {
  const std::lock_guard lock(mutex_);
  for (Origin& origin : origins) {
    if (recorded_origins_++ >= kMostOrigins) break;
    recorder_.origin(origin);
    learned_.push_back(std::move(origin));
  }
  for (const Experiment& one : experiments) recorder_.fact(fact_of(one));
  recorder_.flush();
}

void Monitor::clipped(double norm, double coefficient, const at::Tensor& gradient) {
  if (!running()) return;
  const std::lock_guard lock(mutex_);
  if (!parameters_.has_gradient(gradient)) return;
  const bool scaled = loss_scale_ > 1 && !amp_checked_;
  facts_.clipped({norm, coefficient, scaled ? loss_scale_ : StepRow::kUnknown});
}

void Monitor::acted(const GuardAction& action) {
  guarded([&] {
    const std::lock_guard lock(mutex_);
    recorder_.action(action);
  });
  tracer_.forget_finite();  // what is put back is written where nobody sees it
}

void Monitor::measured(const GuardAction& clip, bool clipped) {
  guarded([&] {
    const std::lock_guard lock(mutex_);
    for (const auto& change : clip_trend_.observe(clip, clipped)) note_clip_change(change);
    if (clipped && clips_recorded_++ < guard::kMostClips) recorder_.action(clip);
  });
}

void Monitor::note_clip_change(const guard::ClipChange& change) {
  const auto number = clip_sites_.try_emplace(change.parameter, clip_sites_.size()).first->second;
  const auto site = sites_.find({SiteRole::clipping, -1, number, -1}, [&] {
    Site fresh;
    fresh.role = SiteRole::clipping;
    fresh.name = change.parameter;
    return fresh;
  });
  if (site < 0) return;
  clip_changes_.push_back(change.transition);
  clip_changes_.back().site = site;
}

std::optional<double> Monitor::pending_loss() {
  const std::lock_guard lock(mutex_);
  if (loss_given_) return row_.loss;
  if (roots_.empty()) return {};
  double sum = 0;
  for (const double root : roots_) sum += root;
  return sum / static_cast<double>(roots_.size());
}

bool Monitor::wrote_finite(const at::Tensor& tensor) {
  return running() && options_.level == Level::ops && tracer_.wrote_finite(tensor);
}

struct Monitor::Aside {
  trace::Tracer tracer;
  explicit Aside(intercept::Places& places) : tracer({}, std::make_unique<BorrowedPlaces>(places)) {}
};

Monitor::Monitor(const MonitorOptions& options, std::unique_ptr<intercept::Places> places)
    : options_(options),
      tracer_({}, std::move(places)),
      process_(getpid()),
      began_(std::chrono::steady_clock::now()),
      recorder_(options.thresholds, options.run_file) {}

Monitor::~Monitor() { close(RunState::complete); }

void Monitor::pause() {
  if (paused_running_) return;
  paused_running_ = running_.exchange(false);
  paused_observing_ = paused_running_ && observing_.exchange(false);
  if (paused_observing_) intercept::stop_observing();
}

void Monitor::resume() {
  if (!paused_running_) return;
  if (paused_observing_) {
    tracer_.resume_at(step_);
    observing_.store(true);
    intercept::start_observing(*this);
  }
  running_.store(true);
  paused_running_ = paused_observing_ = false;
}

void Monitor::begin_aside() {
  if (aside_) return;
  auto aside = std::make_unique<Aside>(tracer_.places());
  {
    std::vector<trace::NamedTensor> named;
    std::vector<std::string> modules;
    {
      const std::lock_guard lock(mutex_);
      named = named_, modules = modules_;
    }
    aside->tracer.set_names(std::move(modules), std::move(named));
  }
  pause();
  aside_ = std::move(aside);
  intercept::start_observing(aside_->tracer);
}

Run Monitor::end_aside(bool died) {
  if (!aside_) return {};
  intercept::stop_observing();
  aside_->tracer.finish(died);
  Run run = aside_->tracer.run();
  aside_.reset();
  resume();
  return run;
}

}  // namespace firstfault::watch
