// What a single step cannot prove: whole windows of steps, run again with one thing changed each.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "firstfault/events/experiment.h"
#include "firstfault/guard/window.h"

namespace firstfault::guard {

struct WindowChange {
  std::string_view name;     ///< of firstfault::experiment
  std::int64_t divisor = 1;  ///< of the learning rate, of a lower one
  std::int64_t warm_up = 0;  ///< steps, of a warm-up
  std::int64_t times = 1;    ///< so many times the steps
  std::string text;          ///< what is changed
};

/// Steps of a program that can be run again from the start of the window, with the same data and random numbers.
class WindowProgram {
 public:
  virtual ~WindowProgram() = default;
  /// Over so many steps, or fewer where its data end or a loss is not finite. `change`: nullptr for none. nullopt:
  /// this change cannot be made in it. `watched`: by a watch of its own, from the window's first step on.
  virtual std::optional<WindowRun> run(const WindowChange* change, std::int64_t steps, bool watched) = 0;
};

struct WindowPlan {
  std::int64_t step = 0;              ///< of the hypothesis that is to be proved, as the run counts
  std::int64_t first = 0;             ///< step of the window, as the program counts
  std::int64_t steps = 0;             ///< of the program
  bool diverged = false;              ///< a step was faulty: its windows need no watch
  bool raw_scores = false;            ///< the program gives nll_loss scores that are no log-probabilities
  std::vector<std::string_view> own;  ///< changes that speak for the causes that are suspected
  std::function<void(const Experiment&)> progress = {};
};

/// First with nothing changed: where that shows no fault, it is all. Of a divergence then each change that is known to
/// cure some, as smaller steps help against nearly every one, and `own`; of another fault `own` alone. More of a lower
/// rate only where less does not cure; it counts only over as many times the steps, at most 5,000. A change says
/// something only where the program makes all steps, or diverges. One thread, the one that trains.
std::vector<Experiment> prove_by_windows(WindowProgram& program, const WindowPlan& plan);

/// Where a window begins, and how many steps it has.
struct WindowSpan {
  std::int64_t first = 0, steps = 0;
};
/// Of a program that made `made` steps and kept snapshots of the beginning of these, in their order: from the newest
/// one before the onset to just after the fault where a step was faulty (`diverged`), else from one that leaves a watch
/// time to learn what is usual to the last step that was made, at most 5,000; and then, where that shows no fault,
/// from the oldest one.
std::vector<WindowSpan> window_spans(std::int64_t onset, std::int64_t step, std::int64_t made, bool diverged,
                                     const std::vector<std::int64_t>& snapshots);

}  // namespace firstfault::guard
