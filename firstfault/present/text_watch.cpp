// Words for what a watched run has: hypotheses, transitions, the verdict.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "firstfault/base/names.h"
#include "firstfault/base/numbers.h"
#include "firstfault/present/causes.h"
#include "firstfault/present/text.h"
#include "firstfault/present/text_parts.h"

namespace firstfault::present {
namespace {

constexpr std::size_t kTransitionsShown = 10;

std::string capitalised(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

std::string quoted(std::string_view label, const std::string& name) {
  return name.empty() ? "" : fmt::format(", {} '{}'", label, printable(name));
}

std::string op_text(const Hypothesis& hypothesis) {
  if (hypothesis.op.empty()) return "";
  const std::string op = ", " + printable(hypothesis.op);
  return hypothesis.forward_op.empty() ? op : op + ", the backward of " + printable(hypothesis.forward_op);
}

std::string headline(const Hypothesis& hypothesis) {
  std::string text = capitalised(words_for_cause(hypothesis.cause)) + fmt::format(": step {}", hypothesis.step);
  if (hypothesis.onset_step && *hypothesis.onset_step != hypothesis.step)
    text += fmt::format(", begun in step {}", *hypothesis.onset_step);
  if (!hypothesis.phase.empty()) text += ", " + printable(hypothesis.phase);
  text += op_text(hypothesis) + quoted("module", hypothesis.module) + quoted("parameter", hypothesis.param);
  if (hypothesis.sample) text += fmt::format(", sample {}", *hypothesis.sample);
  if (!hypothesis.file.empty()) text += fmt::format(", at {}:{}", printable(hypothesis.file), hypothesis.line);
  return text + ".\n";
}

std::string evidence_text(const Evidence& evidence) {
  std::string text = evidence.step < 0 ? "" : fmt::format("step {}: ", evidence.step);
  if (!evidence.site.empty() && evidence.text.find(evidence.site) == std::string::npos)
    text += printable(evidence.site) + ": ";
  return text + printable(evidence.text);
}

std::string evidence_lines(const Hypothesis& hypothesis) {
  std::string text;
  for (const Evidence& evidence : hypothesis.evidence)
    text += line(text.empty() ? "evidence" : "", evidence_text(evidence));
  return text;
}

std::string standing_text(const Hypothesis& hypothesis) {
  const auto name = name_of(hypothesis.standing);
  return fmt::format("{}, confidence {:.2f}   [{}]", name, hypothesis.confidence, printable(hypothesis.cause));
}

std::string lines_of(const Hypothesis& hypothesis) {
  std::string text = headline(hypothesis);
  text += line("why", printable(hypothesis.description));
  text += line("mechanism", printable(hypothesis.mechanism));
  text += evidence_lines(hypothesis);
  text += line("advice", printable(hypothesis.advice));
  return text + line("standing", standing_text(hypothesis));
}

/// One step that recovers, or what replay has ruled out, is no failure of the run.
bool tells_of_a_fault(const Hypothesis& hypothesis) {
  return hypothesis.cause != "loss_spike" && hypothesis.cause != "healthy" && hypothesis.standing != Standing::refuted;
}

std::string ending(const Run& run) { return run.state == RunState::died ? "; the run died" : ""; }

std::string transition_lines(const Run& run) {
  std::string text;
  const std::size_t shown = std::min(run.transitions.size(), kTransitionsShown);
  for (std::size_t i = 0; i < shown; ++i) text += "  " + to_text(run.transitions[i], run) + "\n";
  if (shown < run.transitions.size()) text += fmt::format("  … {} more\n", run.transitions.size() - shown);
  return text.empty() ? "" : "\n" + text;
}

std::string without_a_cause(const Run& run) {
  const auto faults = with(run, Outcome::fault);
  const std::string steps = plural(run.steps, "step");
  if (faults.empty() && run.transitions.empty()) return fmt::format("No fault found in {}{}.\n", steps, ending(run));
  const std::string seen =
      faults.empty() ? plural(std::ssize(run.transitions), "transition") : plural(std::ssize(faults), "fault");
  return fmt::format("{} in {}{}, and no cause found.\n", capitalised(seen), steps, ending(run)) +
         numbered("Fault", faults) + transition_lines(run);
}

std::string verdict(const Hypothesis& likeliest, const Run& run) {
  const std::string steps = plural(run.steps, "step");
  if (!tells_of_a_fault(likeliest)) return fmt::format("No fault found in {}{}.\n", steps, ending(run));
  return fmt::format("Fault in step {} of {}{}: {} ({:.2f}).\n", likeliest.step, steps, ending(run),
                     words_for_cause(likeliest.cause), likeliest.confidence);
}

std::string actions_block(const Run& run) {
  const std::string text = action_lines(run);
  return text.empty() ? "" : "\n" + text;
}

std::string lines_of(std::span<const Hypothesis> hypotheses, const Run& run) {
  if (hypotheses.empty()) return without_a_cause(run) + actions_block(run) + what_was_missed(run);
  const auto found = std::find_if(hypotheses.begin(), hypotheses.end(), tells_of_a_fault);
  std::string text = verdict(found == hypotheses.end() ? hypotheses.front() : *found, run);
  for (const Hypothesis& hypothesis : hypotheses) text += "\n" + lines_of(hypothesis);
  return text + actions_block(run) + what_was_missed(run);
}

/// "2.31 -> 0.0043" of the first and the last row that know it.
std::string course(const Run& run, double StepRow::*number) {
  const auto knows = [&](const StepRow& row) { return std::isfinite(row.*number); };
  const auto first = std::find_if(run.rows.begin(), run.rows.end(), knows);
  const auto last = std::find_if(run.rows.rbegin(), run.rows.rend(), knows);
  if (first == run.rows.end()) return "";
  if (&*first == &*last) return short_number((*first).*number);
  return short_number((*first).*number) + " -> " + short_number((*last).*number);
}

std::string fact_text(const Fact& fact) {
  std::string text = std::string(name_of(fact.kind));
  std::replace(text.begin(), text.end(), '_', ' ');
  for (const std::string& part : {fact.op, fact.module, fact.detail})
    if (!part.empty()) text += ", " + printable(part);
  return text + fmt::format(" (since step {}, {})", fact.first_step, plural(fact.count, "step"));
}

std::string fact_lines(const Run& run) {
  std::string text;
  for (const Fact& fact : run.facts) text += line(text.empty() ? "seen" : "", fact_text(fact));
  return text;
}

}  // namespace

/// Three significant digits are what a person compares.
std::string short_number(double value) {
  const double size = std::fabs(value);
  if (size >= 1000 && size < 1e6) return fmt::format("{:.0f}", value);
  return std::isfinite(value) && value != std::floor(value) ? fmt::format("{:.3g}", value) : show_number(value);
}

bool watched(const Run& run) { return !run.sites.empty() || !run.rows.empty(); }

std::string summary_of(const Run& run) {
  const auto faults = with(run, Outcome::fault);
  const auto swallowed = with(run, Outcome::swallowed);
  std::string text = faults.empty() ? std::string("No non-finite value did harm") : plural(std::ssize(faults), "fault");
  text += fmt::format(" in {}, {} watched, {}; {}.\n", plural(run.steps, "step"), plural(std::ssize(run.sites), "site"),
                      plural(std::ssize(run.transitions), "transition"), name_of(run.state));
  text += line("loss", course(run, &StepRow::loss));
  text += line("gradient", course(run, &StepRow::gradient_norm));
  text += line("lr", course(run, &StepRow::lr));
  text += fact_lines(run) + action_lines(run) + transition_lines(run);
  return text + numbered("Fault", faults) + numbered("Warning", swallowed) + what_was_missed(run);
}

std::string to_text(const Site& site) {
  const std::string name = printable(site.name);
  switch (site.role) {
    case SiteRole::gradient: return fmt::format("gradient of '{}'", name);
    case SiteRole::parameter: return fmt::format("parameter '{}'", name);
    case SiteRole::activation: {
      const std::string module = printable(site.module.empty() ? site.name : site.module);
      return fmt::format("{} of module '{}'", site.op.empty() ? "output" : printable(site.op), module);
    }
    case SiteRole::clipping: return name.empty() ? "clipping" : fmt::format("clipping of '{}'", name);
    default: return name.empty() ? std::string(name_of(site.role)) : name;
  }
}

std::string to_text(const Transition& transition, const Site& site) {
  std::string text = fmt::format("step {}: {} went from {} to {}", transition.step, to_text(site),
                                 name_of(transition.from), name_of(transition.to));
  const std::string usual =
      std::isnan(transition.baseline) ? "" : fmt::format(", usually {}", short_number(transition.baseline));
  if (transition.to != Condition::non_finite) text += fmt::format(" ({}{})", short_number(transition.value), usual);
  return text + fmt::format(", confidence {:.2f}", transition.confidence);
}

std::string to_text(const Transition& transition, const Run& run) {
  const auto index = static_cast<std::size_t>(transition.site);
  if (transition.site >= 0 && index < run.sites.size()) return to_text(transition, run.sites[index]);
  Site unknown;
  unknown.name = fmt::format("site {}", transition.site);
  return to_text(transition, unknown);
}

std::string to_text(const Hypothesis& hypothesis) { return without_last_newline(lines_of(hypothesis)); }
std::string to_text(std::span<const Hypothesis> hypotheses, const Run& run) {
  return without_last_newline(lines_of(hypotheses, run));
}

}  // namespace firstfault::present
