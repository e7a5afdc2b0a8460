// What the tests of the run file share: a folder that goes away, a run as text, a disk that fills up.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "firstfault/record/hand_made.h"
#include "firstfault/record/storage/json.h"

namespace firstfault::record {

class TestFolder {
 public:
  TestFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "ff-test-XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// All of a run, numbers in hexadecimal: two runs are equal if these are. Origins by JSON, which has a test of its own.
class RunText {
 public:
  static std::string of(const Run& run) {
    RunText text;
    text.add("run", run.steps, run.ops, static_cast<int>(run.state));
    text.add(to_json(run.setup));
    for (const ModuleInfo& one : run.setup.modules) text.add("module", one.path, one.type, one.parameters);
    for (const Site& one : run.sites) {
      text.add("site", static_cast<int>(one.role), one.module, one.name, one.op, one.dtype, to_json(one.shape),
               one.order);
    }
    for (const StepRow& one : run.rows) text.add_row(one);
    for (const Transition& one : run.transitions) {
      text.add("transition", one.step, one.site, static_cast<int>(one.from), static_cast<int>(one.to), one.value,
               one.baseline, one.confidence);
    }
    for (const Fact& one : run.facts) {
      text.add("fact", static_cast<int>(one.kind), one.module, one.op, one.detail, one.first_step, one.last_step,
               one.count, to_json(one.numbers), one.file, one.line);
    }
    for (const Origin& one : run.origins) text.add(to_json(one));
    for (const GuardAction& one : run.actions) {
      text.add("action", one.step, static_cast<int>(one.kind), one.fault, one.reason, one.undone, one.snapshot,
               one.lost, one.norm, one.limit, one.coefficient, one.angle, one.length);
      for (const GradientShare& share : one.largest) text.add(" ", share.name, share.share);
    }
    for (const Uninspected& one : run.uninspected) text.add("uninspected", one.what, one.tensors);
    for (const std::string& one : run.warnings) text.add("warning", one);
    return text.text_;
  }

 private:
  void add_row(const StepRow& row) {
    add("row", row.step, row.seconds, row.loss, static_cast<int>(row.loss_state), row.gradient_norm, row.update_ratio,
        row.parameter_norm, row.lr, row.loss_scale, row.backwards, row.gradients_left_over, row.skipped,
        row.reset_state, row.optimizer, row.logged.size(), row.sites.size());
    for (const auto& [name, value] : row.logged) add("logged", name, value);
    for (const Health& one : row.sites) {
      add(" ", one.nonfinite, one.rms, one.absmax, one.mean, one.zeros, one.saturated, one.dead, one.varies,
          one.columns, one.update, one.flips, one.lr, one.second, one.eps, one.state_steps, one.row);
    }
  }
  template <class... Values>
  void add(const Values&... values) {
    (one(values), ...);
    text_ += '\n';
  }
  void one(const std::string& value) { text_ += value + "|"; }
  void one(const char* value) { text_ += value; }
  template <class Number>
  void one(Number value) {
    char buffer[64];
    std::snprintf(buffer, sizeof buffer, "%a ", static_cast<double>(value));
    text_ += buffer;
  }
  std::string text_;
};

}  // namespace firstfault::record
