#include "firstfault/live/watch/recorder.h"

#include <chrono>
#include <cstdio>

#include "firstfault/base/error.h"

namespace firstfault::watch {

Recorder::Recorder(const DetectorOptions& thresholds, const std::string& path) : detector_(thresholds) {
  if (path.empty()) return;
  try {
    file_ = std::make_unique<record::RunFile>(path);
  } catch (const Error& error) {
    const std::string text = std::string(error.what()) + "; the run is kept in memory only";
    std::fprintf(stderr, "firstfault: %s\n", text.c_str());
    warning(text);
  }
}

void Recorder::set_setup(const Setup& setup) {
  history_.set_setup(setup);
  if (file_) file_->set_setup(setup);
}

void Recorder::sites(const std::vector<Site>& all) {
  for (std::size_t i = sites_.size(); i < all.size(); ++i) {
    history_.add_site(all[i]);
    if (file_) file_->add_site(all[i]);
    sites_.push_back(all[i]);
  }
}

void Recorder::step(StepRow row) {
  const auto transitions = detector_.observe(sites_, row);
  if (file_) file_->add_row(row);
  history_.add_row(std::move(row));
  for (const Transition& one : transitions) transition(one);
  if (!file_) return;
  if (auto problem = file_->problem(); problem != reported_problem_) {
    reported_problem_ = std::move(problem);
    std::fprintf(stderr, "firstfault: %s\n", reported_problem_.c_str());
    history_.add_warning(reported_problem_);
  }
}

void Recorder::transition(const Transition& transition) {
  history_.add_transition(transition);
  if (file_) file_->add_transition(transition);
}

void Recorder::fact(const Fact& fact) {
  history_.merge_fact(fact);
  if (file_) file_->merge_fact(fact);
}

void Recorder::origin(Origin origin) {
  if (file_) file_->add_origin(origin);
  history_.add_origin(std::move(origin));
}

void Recorder::action(const GuardAction& action) {
  if (file_) file_->add_action(action);
  history_.add_action(action);
}

void Recorder::warning(const std::string& text) {
  history_.add_warning(text);
  if (file_) file_->add_warning(text);
}

void Recorder::counts(std::int64_t ops, std::vector<Uninspected> uninspected) {
  if (file_) file_->set_ops(ops);
  if (file_) file_->set_uninspected(uninspected);
  history_.set_ops(ops);
  history_.set_uninspected(std::move(uninspected));
}

void Recorder::flush() {
  constexpr std::chrono::milliseconds kLimit{200};
  if (file_) file_->flush(kLimit);
}

void Recorder::close(RunState state) {
  history_.set_state(state);
  if (file_) file_->close(state);
}

std::string Recorder::path() const { return file_ ? file_->path() : std::string(); }

Run Recorder::snapshot() const { return history_.snapshot(); }

}  // namespace firstfault::watch
