// The monitor around steps: what is measured at the optimizer, and how a row is made and recorded.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>

#include <unistd.h>

#include "firstfault/live/measure/statistics.h"
#include "firstfault/live/trace/evidence/collect.h"
#include "firstfault/live/watch/monitor.h"

namespace firstfault::watch {
namespace {

/// Every step until one, and every so many from there on.
struct Pace {
  std::int64_t until, then_every;
  bool takes(std::int64_t step) const { return step < until || step % then_every == 0; }
};

constexpr Pace kObserved{8, 8};   // at the level `modules`; and parameters looked at whole, where no op is seen
constexpr Pace kMeasured{64, 4};  // activations

bool is_unknown(double value) { return std::isnan(value); }

// Of second moments: the smallest square root that is not 0, where there is one.
float smallest_root(const std::vector<at::Tensor>& moments) {
  float some[64];
  float least = Health::kAbsent;
  for (const at::Tensor& moment : moments) {
    const auto count = measure::sample_into(moment, some);
    for (std::size_t i = 0; i < count; ++i) {
      const float root = std::sqrt(some[i]);
      const bool better = std::isnan(least) || (root > 0 && (least == 0 || root < least));
      if (!std::isnan(root) && better) least = root;
    }
  }
  return least;
}

}  // namespace

bool Monitor::in_parent() const noexcept { return getpid() == process_; }

void Monitor::give_up(const char* reason) noexcept {
  running_.store(false);
  std::fprintf(stderr, "firstfault: stopped watching after an internal failure (%s); the training goes on\n", reason);
}

void Monitor::set_names(std::vector<std::string> modules, const std::vector<trace::NamedTensor>& tensors) {
  tracer_.set_names(modules, tensors);
  const std::lock_guard lock(mutex_);
  modules_ = std::move(modules);
  named_ = tensors;
  order_.resize(modules_.size(), -1);
  leaf_.assign(modules_.size(), true);
  for (std::size_t i = 0; i < modules_.size(); ++i) {
    const auto is_inside = [&](const std::string& other) { return other.starts_with(modules_[i] + "."); };
    leaf_[i] = std::none_of(modules_.begin(), modules_.end(), is_inside);
  }
  parameters_.set_names(tensors);
}

void Monitor::set_setup(Setup setup) {
  const std::lock_guard lock(mutex_);
  recorder_.set_setup(setup);
}

void Monitor::hold(const std::vector<HeldTensor>& held) {
  const std::lock_guard lock(mutex_);
  const auto foreign = parameters_.hold(held);
  if (foreign == 0) return;
  Fact fact;
  fact.kind = FactKind::foreign;
  fact.numbers["count"] = static_cast<double>(foreign);
  facts_.add(std::move(fact));
}

void Monitor::start() {
  running_.store(true);
  if (options_.level == Level::gradients) return;
  intercept::start_observing(*this);
  observing_.store(true);
}

void Monitor::before_step(std::int32_t optimizer, const std::vector<GroupNumbers>& groups, bool ranged) {
  guarded([&] {
    if (observing_ && !ranged) tracer_.on_optimizer(true);
    settle_steps();
    const std::lock_guard lock(mutex_);
    row_open_ = true;
    row_.optimizer = optimizer;
    row_.gradients_left_over = parameters_.left_over(optimizer);
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const KnownState& known = states_[{optimizer, i}];
      // Gone, or set to 0: then the bias correction of Adam no longer fits.
      const bool zeroed = known.second > 0 && smallest_root(groups[i].second_moments) == 0;
      if ((known.steps > 0 && groups[i].state_steps == 0) || zeroed) row_.reset_state = true;
    }
    parameters_.before_step(optimizer);
  });
}

void Monitor::after_step(std::int32_t optimizer, const std::vector<GroupNumbers>& groups, bool ranged) {
  guarded([&] {
    {
      const std::lock_guard lock(mutex_);
      put_parameters(optimizer);
      put_groups(optimizer, groups);
      stepped_ = true;
    }
    const bool observe_next =
        options_.level == Level::ops || (options_.level == Level::modules && kObserved.takes(step_ + 1));
    const bool observing = observing_;
    // The end of a range that began before observation, or ends after it, is not heard of.
    if (observing && (!ranged || !observe_next)) tracer_.on_optimizer(false);
    if (observing) settle_steps();
    if (!observing) end_unobserved_step();
    if (observe_next == observing) return;
    observing_.store(observe_next);
    if (!observe_next) return intercept::stop_observing();
    tracer_.resume_at(step_);
    intercept::start_observing(*this);
  });
}

void Monitor::put_groups(std::int32_t optimizer, const std::vector<GroupNumbers>& groups) {
  double lr = StepRow::kUnknown;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const GroupNumbers& group = groups[i];
    if (!(lr >= group.lr)) lr = group.lr;
    const auto index = sites_.find({SiteRole::optimizer, optimizer, i, -1}, [&] {
      Site site;
      site.role = SiteRole::optimizer;
      site.name = (optimizer > 0 ? "optimizer " + std::to_string(optimizer) + ", " : "") + "group " + std::to_string(i);
      return site;
    });
    if (index < 0) continue;
    Health health;
    health.nonfinite = group.has_lr && !std::isfinite(group.lr);
    health.lr = static_cast<float>(group.lr);
    health.eps = static_cast<float>(group.eps);
    health.state_steps = static_cast<float>(group.state_steps);
    health.second = smallest_root(group.second_moments);
    put(index, health);
    states_[{optimizer, i}] = {is_unknown(group.state_steps) ? 0 : group.state_steps, health.second};
  }
  row_.lr = lr;
}

void Monitor::put_parameters(std::int32_t optimizer) {
  StepSums sums;
  // The tracer has seen every write; where it has not, all are looked at now and then.
  const bool scan = !observing_ && kObserved.takes(step_);
  for (const Measured& one : parameters_.after_step(optimizer, scan, sums)) {
    const auto& tracked = parameters_.all()[static_cast<std::size_t>(one.parameter)];
    const auto put_as = [&](SiteRole role, const Health& health) {
      if (!health.seen()) return;
      const auto identity = reinterpret_cast<std::uintptr_t>(tracked.tensor.unsafeGetTensorImpl());
      const auto index = sites_.find({role, -1, identity, -1}, [&] { return parameter_site(role, tracked); });
      if (index >= 0) put(index, health);
    };
    put_as(SiteRole::gradient, one.gradient);
    put_as(SiteRole::parameter, one.parameter_health);
  }
  row_.gradient_norm = sums.bad_gradient ? std::numeric_limits<double>::infinity() : std::sqrt(sums.gradient_squares);
  row_.parameter_norm = std::sqrt(sums.parameter_squares);
  if (sums.parameter_squares > 0) row_.update_ratio = std::sqrt(sums.update_squares / sums.parameter_squares);
  if (const auto names = parameters_.not_held(); !names.empty()) {
    Fact fact;
    fact.kind = FactKind::not_held;
    constexpr std::size_t kMost = 8;
    for (std::size_t i = 0; i < std::min(names.size(), kMost); ++i) fact.detail += (i ? ", " : "") + names[i];
    fact.numbers["count"] = static_cast<double>(names.size());
    facts_.add(std::move(fact));
  }
}

Site Monitor::parameter_site(SiteRole role, const Parameters::Tracked& tracked) {
  Site site;
  site.role = role;
  site.module = module_name(tracked.module);
  site.name = tracked.name;
  site.dtype = trace::evidence::dtype_name(tracked.tensor.scalar_type());
  site.shape = tracked.tensor.sizes().vec();
  // Where no forward was seen, by place in the model: modules are listed in the order of their definition.
  site.order = tracked.module < 0                                  ? -1
               : options_.level == Level::gradients || !observing_ ? tracked.module
                                                                   : order_of(tracked.module);
  return site;
}

void Monitor::loss(double value) {
  guarded([&] {
    const std::lock_guard lock(mutex_);
    StepRow& row = waiting_ && !row_open_ ? *waiting_ : row_;
    if (!waiting_ && !row_open_ && step_ > 0 && observing_) return;  // of a step that has ended, whose loss was seen
    set_loss(row, value);
    if (waiting_ && !row_open_) return flush_waiting();
    row_open_ = true;
    loss_given_ = true;
  });
}

void Monitor::log(const std::string& name, double value) {
  guarded([&] {
    const std::lock_guard lock(mutex_);
    constexpr std::size_t kMost = 64;
    if (row_.logged.size() < kMost || row_.logged.count(name)) row_.logged[name] = value;
  });
}

void Monitor::scaled(double scale, bool passed_over) {
  guarded([&] {
    const std::lock_guard lock(mutex_);
    if (scale > 0) row_.loss_scale = loss_scale_ = scale;
    row_.skipped = passed_over;
  });
}

// Each step that the tracer has judged is one row.
void Monitor::settle_steps() {
  const auto ended = tracer_.steps_ended();
  if (settled_.load(std::memory_order_relaxed) == ended) return;
  {
    const std::lock_guard lock(mutex_);
    if (settled_.exchange(ended) == ended) return;
    finish_row();
  }
  record_origins();
}

void Monitor::end_unobserved_step() {
  const std::lock_guard lock(mutex_);
  finish_row();
}

void Monitor::set_loss(StepRow& row, double value) {
  row.loss = value;
  row.loss_state = std::isnan(value)   ? StepRow::Loss::nan
                   : std::isinf(value) ? StepRow::Loss::inf
                                       : StepRow::Loss::finite;
}

// Micro-batches: the mean. A GradScaler's multiplication is undone.
void Monitor::finish_loss() {
  if (!loss_given_ && !roots_.empty()) {
    double sum = 0;
    for (const double root : roots_) sum += root;
    set_loss(row_, sum / static_cast<double>(roots_.size()) / (row_.loss_scale > 0 ? row_.loss_scale : 1));
  }
  if (row_.loss_state == StepRow::Loss::unknown) return;
  const auto index = sites_.find({SiteRole::loss, row_.optimizer, 0, -1}, [&] {
    Site site;
    site.role = SiteRole::loss;
    site.name = row_.optimizer > 0 ? "loss " + std::to_string(row_.optimizer) : "loss";
    if (root_op_) site.op = root_op_->name;
    return site;
  });
  if (index < 0) return;
  Health health;
  health.nonfinite = row_.bad_loss();
  if (!row_.bad_loss()) health.rms = static_cast<float>(row_.loss);
  put(index, health);
}

void Monitor::finish_row() {
  flush_waiting();
  if (!row_open_) return;
  finish_loss();
  row_.step = step_++;
  row_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  if (!stepped_ && amp_checked_) row_.skipped = true;
  if (!stepped_) row_.gradients_left_over = parameters_.left_over(-1);
  note_growth_in_time();
  for (Fact& fact : facts_.take(row_.step, loss_scale_)) {
    const double factor = loss_factor_ / (row_.loss_scale > 0 ? row_.loss_scale : 1);
    if (fact.kind == FactKind::loss_op && std::isfinite(factor)) fact.numbers["factor"] = factor;
    recorder_.fact(fact);
  }
  if (row_.loss_state == StepRow::Loss::unknown) {
    waiting_ = std::move(row_);
  } else {
    record_row(std::move(row_));
  }
  const bool all_ran = std::none_of(order_.begin(), order_.end(), [](std::int32_t order) { return order < 0; });
  constexpr std::int64_t kAskFor = 4;
  ordering_.store(!all_ran && step_ < kAskFor, std::memory_order_relaxed);
  measuring_.store(kMeasured.takes(step_), std::memory_order_relaxed);
  begin_row();
}

// What is left of it at the end is known by the last observation; that it was so from the start, by the first.
void Monitor::note_growth_in_time() {
  for (const GrowthInTime& growth : in_time_.take()) {
    const auto named = std::find_if(named_.begin(), named_.end(), [&](const trace::NamedTensor& one) {
      return one.tensor.unsafeGetTensorImpl() == growth.weight;
    });
    auto& [first, most] =
        lambdas_.try_emplace({growth.module, growth.weight}, std::array{growth.lambda, growth.lambda}).first->second;
    most = std::max(most, growth.lambda);
    Fact fact;
    fact.kind = FactKind::growth_in_time;
    fact.module = module_name(growth.module);
    fact.op = growth.op->name;
    if (named != named_.end()) fact.detail = named->name;
    fact.numbers = {{"lambda", growth.lambda}, {"lambda_first", first},
                    {"lambda_most", most},     {"steps", static_cast<double>(growth.steps)},
                    {"first", growth.first},   {"last", growth.last},
                    {"zeros", growth.zeros},   {"fit", growth.fit}};
    facts_.add(std::move(fact));
  }
}

void Monitor::begin_row() {
  row_ = StepRow{};
  row_open_ = loss_given_ = stepped_ = amp_checked_ = root_pending_ = false;
  roots_.clear();
  loss_op_value_ = 0;
  loss_factor_ = StepRow::kUnknown;
  accumulations_ = 0;
  recurrent_.store(false, std::memory_order_relaxed);
  parameters_.end_step();
  batch_seen_.clear();
  batch_full_.store(false, std::memory_order_relaxed);
}

void Monitor::flush_waiting() {
  if (!waiting_) return;
  StepRow row = std::move(*waiting_);
  waiting_.reset();
  record_row(std::move(row));
}

void Monitor::record_row(StepRow row) {
  recorder_.sites(sites_.all());
  row.sites.resize(sites_.all().size());
  const auto step = row.step;
  recorder_.step(std::move(row));
  record_clip_changes(step);
}

void Monitor::record_clip_changes(std::int64_t until) {
  std::erase_if(clip_changes_, [&](const Transition& change) {
    if (change.step <= until) recorder_.transition(change);
    return change.step <= until;
  });
}

void Monitor::record_origins() {
  if (recorded_origins_ >= kMostOrigins) return;
  const auto count = tracer_.reported();
  if (count <= known_origins_) {
    known_origins_ = count;
    return;
  }
  auto fresh = tracer_.reported_from(known_origins_);
  known_origins_ = count;
  const std::lock_guard lock(mutex_);
  for (Origin& origin : fresh) {
    if (origin.outcome != Outcome::fault && origin.outcome != Outcome::swallowed) continue;
    if (recorded_origins_++ < kMostOrigins) recorder_.origin(std::move(origin));
  }
  constexpr std::int64_t kWaitFor = 4;  // a program that goes on with NaN is not slowed down
  if (recorded_origins_ <= kWaitFor) recorder_.flush();
}

void Monitor::close(RunState state) {
  if (!in_parent() || closed_.exchange(true)) return;
  const bool was_running = running_.exchange(false);
  try {
    if (observing_.exchange(false)) intercept::stop_observing();
    if (was_running && options_.level != Level::gradients) tracer_.finish(state == RunState::died);
    {
      const std::lock_guard lock(mutex_);  // what a program computes when it has trained is no step
      row_open_ = row_open_ && (row_.backwards > 0 || loss_given_ || state == RunState::died);
    }
    settle_steps();
    const Run traced = tracer_.run();
    const std::lock_guard lock(mutex_);
    finish_row();
    flush_waiting();
    recorder_.sites(sites_.all());
    record_clip_changes(step_);
    for (const auto& warning : traced.warnings) recorder_.warning(warning);
    recorder_.counts(traced.ops, traced.uninspected);
    recorder_.close(state);
  } catch (const std::exception& error) {
    give_up(error.what());
  }
}

Run Monitor::run() {
  const Run traced = tracer_.run();
  const std::lock_guard lock(mutex_);
  flush_waiting();
  Run run = recorder_.snapshot();
  run.steps = step_;
  run.ops = traced.ops;
  run.origins = traced.origins;
  run.origins.insert(run.origins.begin(), learned_.begin(), learned_.end());
  record::sort_origins(run.origins);
  run.uninspected = traced.uninspected;
  return run;
}

std::string Monitor::path() {
  const std::lock_guard lock(mutex_);
  return recorder_.path();
}

}  // namespace firstfault::watch
