// A run file that was read and judged.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/command.h"
#include "firstfault/events/hypothesis.h"
#include "firstfault/record/run.h"

namespace firstfault::cli {

/// What there is to say in one line.
struct Verdict {
  enum class Kind { healthy, fault, nothing_recorded };
  Kind kind = Kind::healthy;
  std::string cause;  ///< of the likeliest hypothesis; "" for none
  double confidence = 0;
  std::int64_t step = -1;  ///< -1: none
};

struct Loaded {
  std::string path;
  Run run;
  std::vector<Hypothesis> hypotheses;  ///< best first
  Verdict verdict;
};

/// Throws Error where there is no usable run file.
Loaded load(const std::string& path);

/// Of an explained run and its hypotheses, best first. Notes (causes that are no failure, and what a replay refuted)
/// are no fault.
Verdict judge(const Run& run, const std::vector<Hypothesis>& hypotheses);

/// "no fault found", "fault in step 37: learning rate too high [lr_too_high], confidence 0.92", "no step to judge by".
std::string to_text(const Verdict& verdict);
const char* name_of(Verdict::Kind kind);

/// What the reader has to say about the file, to stderr.
void write_warnings(const Run& run, const Context& context);

}  // namespace firstfault::cli
