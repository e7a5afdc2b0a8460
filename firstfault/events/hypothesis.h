// Why the run failed, as far as can be said: a cause, how sure, on what evidence, and what to do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace firstfault {

enum class Standing : std::uint8_t {
  observed,       ///< read off the operands of the first faulty op
  inferred,       ///< a rule over the run's numbers
  confirmed,      ///< by replay: its own change cures the step, its rivals' do not
  located,        ///< by replay: where, not why
  not_separable,  ///< by replay: this one and another both cure
  delayed,        ///< by replay: finite for longer, same growth
  refuted,        ///< by replay: its change does not cure
  not_tested,     ///< no experiment could be made
};

constexpr std::string_view name_of(Standing standing) noexcept {
  constexpr std::string_view names[] = {"observed",      "inferred", "confirmed", "located",
                                        "not separable", "delayed",  "refuted",   "not tested"};
  return names[static_cast<int>(standing)];
}

/// One piece of evidence: a sentence with the numbers in it, and where it can be seen.
struct Evidence {
  std::int64_t step = -1;  ///< -1: not bound to a step
  std::string site;        ///< name of the site, "" for none
  std::string text;
};

/// Absent strings are "", absent numbers nullopt.
struct Hypothesis {
  std::string cause;      ///< from the vocabulary of docs/rules: "lr_too_high", "op_domain" …
  double confidence = 0;  ///< 0 to 1; of those said with 0.9, nine in ten are right
  Standing standing = Standing::inferred;
  std::int64_t step = 0;                   ///< first step in which the harm shows
  std::optional<std::int64_t> onset_step;  ///< when the cause began to act, where that is another step
  std::string phase;                       ///< data, forward, backward, optimizer, collective
  std::string op, forward_op, module, param;
  std::optional<std::int64_t> sample;
  std::string file;
  int line = 0;
  std::string mechanism;
  std::string description;         ///< one or two sentences: what happened and why
  std::vector<Evidence> evidence;  ///< in order of time; effects of the cause are listed here, not as rivals
  std::string advice;
};

}  // namespace firstfault
