// Where the numbers of a watched run go: through the detector, into memory and into the run file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "firstfault/detect/detector.h"
#include "firstfault/record/history.h"
#include "firstfault/record/run_file.h"

namespace firstfault::watch {

/// Not thread-safe; the run file's disk work is done on a thread of its own.
class Recorder {
 public:
  /// `path` "": in memory only. Where the file cannot be made, a warning is kept and printed, and the run is recorded
  /// in memory.
  Recorder(const DetectorOptions& thresholds, const std::string& path);

  void set_setup(const Setup& setup);
  /// All sites so far; those that are new are recorded.
  void sites(const std::vector<Site>& all);
  void step(StepRow row);
  void transition(const Transition& transition);
  void fact(const Fact& fact);
  void origin(Origin origin);
  void action(const GuardAction& action);
  void warning(const std::string& text);
  void counts(std::int64_t ops, std::vector<Uninspected> uninspected);
  /// Waits a moment until the run file holds all of that: after a fault the process may not live.
  void flush();
  void close(RunState state);

  /// "" where there is none.
  std::string path() const;
  Run snapshot() const;

 private:
  Detector detector_;
  record::History history_;
  std::unique_ptr<record::RunFile> file_;
  std::vector<Site> sites_;
  std::string reported_problem_;
};

}  // namespace firstfault::watch
