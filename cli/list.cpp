// The commands, one line each, in the order in which --help shows them.
#include "cli/command.h"

namespace firstfault::cli {

Action declare_run(Options& options);
Action declare_prove(Options& options);
Action declare_show(Options& options);
Action declare_explain(Options& options);
Action declare_events(Options& options);
Action declare_export(Options& options);
Action declare_diff(Options& options);
Action declare_check(Options& options);
Action declare_rules(Options& options);
Action declare_mechanisms(Options& options);
Action declare_info(Options& options);

std::span<const Command> commands() {
  static constexpr Command kCommands[] = {
      {"run", "Runs a Python script or a LibTorch program, unchanged, and records it", declare_run},
      {"prove", "Runs a Python script again with one thing changed each, to prove why it failed", declare_prove},
      {"show", "The state of a run: verdict, last steps, what is not healthy", declare_show},
      {"explain", "Why it failed: hypotheses, likeliest first", declare_explain},
      {"events", "What changed when: every transition of a site", declare_events},
      {"export", "The numbers as csv, json or parquet", declare_export},
      {"diff", "What two runs have not in common, and the step at which they part", declare_diff},
      {"check", "For scripts: exit code 0 healthy, 1 fault, 2 unusable", declare_check},
      {"rules", "The causes that are known, and when each is named", declare_rules},
      {"mechanisms", "The reasons that are known for an op to give NaN or Inf", declare_mechanisms},
      {"info", "What a bug report needs", declare_info},
  };
  return kCommands;
}

}  // namespace firstfault::cli
