// A sentence that says what happened where, then the facts behind it, one to a line.
#include "firstfault/present/text.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "firstfault/base/names.h"
#include "firstfault/base/numbers.h"
#include "firstfault/present/text_parts.h"

namespace firstfault::present {
namespace {

constexpr std::size_t kPathHead = 4;
constexpr std::size_t kPathTail = 4;
constexpr std::size_t kFramesShown = 3;

/// Without a file, the function and why there is none.
std::string frame(const SourceFrame& frame) {
  return frame.file.empty() ? printable(frame.function) : fmt::format("{}:{}", printable(frame.file), frame.line);
}

std::string kind(const Origin& origin) {
  const std::string_view name = name_of(origin.evidence.first);
  return name.empty() ? "A non-finite value" : std::string(name);
}

std::string module_text(const Origin& origin) {
  if (!origin.module.empty()) return fmt::format("module '{}'", printable(origin.module));
  if (!origin.after_module.empty())
    return fmt::format("outside any module (after module '{}')", printable(origin.after_module));
  return "outside any module";
}

std::string place(const Origin& origin) {
  if (origin.stack.empty()) return "";
  return (origin.stack.front().file.empty() ? " in " : " at ") + frame(origin.stack.front());
}

std::string moment(const Origin& origin) {
  return fmt::format("op {}, step {}, {}", origin.op_number, origin.step, name_of(origin.phase));
}

bool held_already(const Origin& origin) {
  const bool by_phase = origin.phase == Phase::parameter || origin.phase == Phase::outside;
  return by_phase || (origin.phase == Phase::data && (origin.evidence.role != TensorRole::none || origin.op.empty()));
}

std::string_view holder(const Origin& origin) {
  switch (origin.evidence.role) {
    case TensorRole::parameter: return "parameter";
    case TensorRole::buffer: return "buffer";
    case TensorRole::gradient: return "gradient of";
    case TensorRole::batch: return "the batch";
    case TensorRole::unwritten: return "memory that no recorded op had written";
    case TensorRole::compiled: return "a compiled region";
    default: return "a tensor from outside the traced code";
  }
}

std::string headline_of_assigned(const Origin& origin) {
  return fmt::format("{} was written into a tensor by the program ({}) in {}, {}{}.\n", kind(origin), moment(origin),
                     printable(origin.op), module_text(origin), origin.stack.empty() ? "" : "," + place(origin));
}

std::string headline_of_tensor(const Origin& origin) {
  if (origin.evidence.assigned()) return headline_of_assigned(origin);
  const std::string& name = origin.evidence.role_name.empty() ? origin.param : origin.evidence.role_name;
  std::string text = fmt::format("{} was already in {}", kind(origin), holder(origin));
  if (!name.empty()) text += fmt::format(" '{}'", printable(name));
  text += fmt::format(" (step {}, {})", origin.step, name_of(origin.phase));
  if (origin.op.empty()) return text + ".\n";
  return text + fmt::format("; first read by {} (op {}), {}{}.\n", printable(origin.op), origin.op_number,
                            module_text(origin), origin.stack.empty() ? "" : "," + place(origin));
}

std::string headline_of_backward(const Origin& origin) {
  std::string text = fmt::format("{} first appeared in {}", kind(origin), printable(origin.op));
  const bool known = !origin.forward_op.empty();
  if (known) text += fmt::format(", the backward of {}{}", printable(origin.forward_op), place(origin));
  const bool unknown = !known && origin.module.empty();
  text += fmt::format(", {} ({})", unknown ? "module not known" : module_text(origin), moment(origin));
  if (!known && !origin.stack.empty()) text += "," + place(origin);
  return text + ".\n";
}

std::string headline_of_op(const Origin& origin) {
  std::string text = fmt::format("{} first appeared in {} ({})", kind(origin), printable(origin.op), moment(origin));
  if (origin.phase == Phase::optimizer) {
    if (!origin.param.empty()) text += fmt::format(", updating parameter '{}'", printable(origin.param));
  } else {
    text += ", " + module_text(origin);
  }
  if (!origin.stack.empty()) text += "," + place(origin);
  return text + ".\n";
}

std::string headline_of_region(const Origin& origin) {
  return fmt::format("{} came out of a compiled region ({}, step {}, {}), {}{}.\n", kind(origin), printable(origin.op),
                     origin.step, name_of(origin.phase), module_text(origin),
                     origin.stack.empty() ? "" : "," + place(origin));
}

std::string headline(const Origin& origin) {
  if (origin.evidence.role == TensorRole::compiled) return headline_of_region(origin);
  if (held_already(origin)) return headline_of_tensor(origin);
  return origin.phase == Phase::backward ? headline_of_backward(origin) : headline_of_op(origin);
}

std::string why(const Origin& origin) {
  if (origin.because.empty()) return "";
  std::string text = printable(origin.because) + ".";
  if (!origin.mechanism.empty()) text += fmt::format("   [{}]", printable(origin.mechanism));
  return text;
}

std::string counts_text(const Counts& counts) {
  std::string text;
  const auto add = [&](std::int64_t count, std::string_view name) {
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", show_count(count), name);
  };
  add(counts.nan, "NaN");
  add(counts.pos_inf, "+Inf");
  add(counts.neg_inf, "-Inf");
  return text;
}

/// "float32 [64, 80] on cpu"; parts that are not known are left out.
std::string type_text(const std::string& dtype, const std::vector<std::int64_t>& shape, const std::string& device) {
  if (dtype.empty() && shape.empty()) return "";
  std::string text = dtype.empty() ? show_index(shape) : printable(dtype) + " " + show_index(shape);
  return device.empty() ? text : text + " on " + printable(device);
}

std::string output_text(const Origin& origin) {
  const OriginEvidence& evidence = origin.evidence;
  std::string text = type_text(evidence.dtype, evidence.shape, origin.device);
  const std::string counts = counts_text(evidence.output);
  if (!counts.empty()) text += (text.empty() ? "" : ": ") + counts;
  if (!evidence.index.empty() && evidence.first != kFinite)
    text += fmt::format("; first at {} = {}", show_index(evidence.index), name_of(evidence.first));
  if (origin.sample) text += fmt::format(", sample {}", *origin.sample);
  return text;
}

std::string scalar_text(const Operand& operand) {
  const std::string name = printable(operand.name);
  return operand.value ? fmt::format("{} = {}", name, show_number(*operand.value)) : name;
}

std::string state_text(const Operand& operand) {
  const std::string counts = counts_text(operand.counts);
  switch (operand.state) {
    case OperandState::finite: return "";
    case OperandState::intended_inf: return counts.empty() ? "intended Inf" : counts + " (intended)";
    case OperandState::bad: return counts.empty() ? "held NaN or Inf already" : counts + " (already)";
    case OperandState::unknown: return "not inspected";
  }
  return "";
}

std::string tensor_text(const Operand& operand) {
  std::vector<std::string> facts;
  if (operand.value) {
    const bool placed = !operand.shape.empty() && !operand.index.empty();
    facts.push_back(show_number(*operand.value) + (placed ? " at " + show_index(operand.index) : ""));
  }
  if (!operand.shape.empty()) {
    if (operand.min) facts.push_back("min " + show_number(*operand.min));
    if (operand.max) facts.push_back("max " + show_number(*operand.max));
  }
  if (operand.zeros && *operand.zeros > 0 && !operand.shape.empty())
    facts.push_back(*operand.zeros == 1 ? "1 zero" : show_count(*operand.zeros) + " zeros");
  if (std::string state = state_text(operand); !state.empty()) facts.push_back(std::move(state));
  if (operand.was_overwritten) facts.push_back("as it was before the op overwrote it");
  std::string text = printable(operand.name);
  if (!operand.source.empty()) text += fmt::format(" ({})", printable(operand.source));
  const std::string type = type_text(operand.dtype, operand.shape, "");
  if (!type.empty()) text += " " + type;
  return facts.empty() ? text : text + fmt::format(": {}", fmt::join(facts, ", "));
}

/// alpha=1 and the like are in every call and say nothing.
bool says_nothing(const Operand& operand) {
  if (!operand.is_scalar_argument) return false;
  const bool factor = operand.name == "alpha" || operand.name == "beta" || operand.name == "value";
  return !operand.value || (factor && *operand.value == 1);
}

std::string operand_lines(const Origin& origin) {
  std::string text;
  for (const Operand& operand : origin.evidence.operands) {
    if (says_nothing(operand)) continue;
    text +=
        line(text.empty() ? "operands" : "", operand.is_scalar_argument ? scalar_text(operand) : tensor_text(operand));
  }
  return text;
}

std::string inner_text(const Origin& origin) {
  std::string text;
  if (!origin.inner_op.empty() && origin.inner_op != origin.op) text = "inside: " + printable(origin.inner_op);
  if (!origin.outer_op.empty() && origin.outer_op != origin.op)
    text += (text.empty() ? "" : "; ") + ("called by " + printable(origin.outer_op));
  return text;
}

std::string stack_text(const Origin& origin) {
  if (origin.stack.size() < 2) return "";
  std::string text;
  for (std::size_t i = 1; i < std::min(origin.stack.size(), kFramesShown + 1); ++i) {
    if (i > 1) text += ", ";
    text += frame(origin.stack[i]);
    if (!origin.stack[i].file.empty() && !origin.stack[i].function.empty())
      text += " in " + printable(origin.stack[i].function);
  }
  return text;
}

std::string harm(const Origin& origin) {
  switch (origin.outcome) {
    case Outcome::fault: return origin.sink.empty() ? "reached a sink" : "reached the " + printable(origin.sink);
    case Outcome::swallowed: return "warning: arithmetic on the way made it finite again";
    case Outcome::deselected: return "none: a where, mask, index, clamp or max left it out";
    case Outcome::unused: return "none: nothing that counts read it";
    case Outcome::intended: return "none: an Inf that is meant";
  }
  return "";
}

/// What the value is stands where it changes: "aten::log (-Inf) -> aten::mul (NaN) -> aten::sum".
std::vector<std::string> path_names(const Origin& origin) {
  std::vector<std::string> names;
  std::string before;
  for (const PathStep& step : origin.path) {
    const bool changed = !step.holds.empty() && step.holds != before;
    names.push_back(printable(step.op) + (changed ? fmt::format(" ({})", step.holds) : ""));
    if (changed) before = step.holds;
  }
  return names;
}

std::string path_text(const Origin& origin) {
  std::vector<std::string> names = path_names(origin);
  if (names.empty()) return "";
  if (names.size() > kPathHead + kPathTail + 1) {
    const std::size_t left_out = names.size() - kPathHead - kPathTail;
    names.erase(names.begin() + kPathHead, names.end() - kPathTail);
    names.insert(names.begin() + kPathHead, fmt::format("… {} more …", left_out));
  }
  const std::string& last = origin.path.back().op;
  const bool named_already = origin.sink == last || origin.sink == "output of " + last;
  if (!origin.sink.empty() && !named_already) names.push_back(printable(origin.sink));
  return fmt::format("{}", fmt::join(names, " -> "));
}

std::string merged_text(const Origin& origin) {
  return origin.merged > 1 ? fmt::format("stands for {} of the same step, op and module", show_count(origin.merged))
                           : "";
}

std::string indented(const std::string& text) {
  std::string out;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    out += "  " + text.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return out;
}

std::string lines_of(const Origin& origin);

std::string lines_of(const Origin& origin) {
  std::string text = headline(origin);
  text += line("why", why(origin));
  text += line("op", inner_text(origin));
  text += line("output", output_text(origin));
  text += operand_lines(origin);
  text += line("called at", stack_text(origin));
  text += line("harm", harm(origin));
  text += line("merged", merged_text(origin));
  text += line("advice", printable(origin.advice));
  text += line("path", path_text(origin));
  return text;
}

std::string lines_of(const Diagnosis& diagnosis) {
  std::string type = type_text(diagnosis.dtype, diagnosis.shape, "");
  const std::string target = printable(diagnosis.target) + (type.empty() ? "" : fmt::format(" ({})", type));
  if (!diagnosis.note.empty()) return printable(diagnosis.note) + ".\n";
  const std::string traced = fmt::format("{} traced", plural(diagnosis.ops, "op"));
  if (diagnosis.counts.total() == 0)
    return fmt::format("{} is finite: nothing is wrong with it. {}.\n", target, traced);
  const std::string counts = counts_text(diagnosis.counts);
  if (diagnosis.culprits.empty())
    return fmt::format("{} holds {}, and no traced op made it: {}.\n", target, counts, traced);
  std::string text = fmt::format("{} holds {}: {} out of {}.\n", target, counts,
                                 plural(static_cast<std::int64_t>(diagnosis.culprits.size()), "culprit"), traced);
  if (diagnosis.culprits.size() == 1) return text + "\n" + lines_of(diagnosis.culprits.front());
  std::vector<const Origin*> culprits;
  for (const Origin& culprit : diagnosis.culprits) culprits.push_back(&culprit);
  return text + numbered("Culprit", culprits);
}

std::string lines_of(const Run& run) {
  if (watched(run)) return summary_of(run);
  const auto faults = with(run, Outcome::fault);
  const auto swallowed = with(run, Outcome::swallowed);
  const auto notes = static_cast<std::int64_t>(run.origins.size() - faults.size() - swallowed.size());
  std::string text =
      fmt::format("{} in {}, {} traced", faults.empty() ? std::string("No fault") : plural(std::ssize(faults), "fault"),
                  plural(run.steps, "step"), plural(run.ops, "op"));
  if (!swallowed.empty()) text += fmt::format("; {}", plural(std::ssize(swallowed), "warning"));
  text += ".\n" + numbered("Fault", faults) + numbered("Warning", swallowed);
  if (notes > 0)
    text += fmt::format("\n{}: non-finite values that were left out or never used.\n", plural(notes, "note"));
  return text + what_was_missed(run);
}

}  // namespace

std::string line(std::string_view label, const std::string& text) {
  return text.empty() ? "" : fmt::format("  {:<10} {}\n", label, text);
}

std::string plural(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", show_count(count), noun, count == 1 ? "" : "s");
}

std::vector<const Origin*> with(const Run& run, Outcome outcome) {
  std::vector<const Origin*> found;
  for (const Origin& origin : run.origins)
    if (origin.outcome == outcome) found.push_back(&origin);
  return found;
}

std::string what_was_missed(const Run& run) {
  std::string text;
  for (const Uninspected& missed : run.uninspected)
    text += fmt::format("Not inspected: {}, {}.\n", printable(missed.what), plural(missed.tensors, "tensor"));
  for (const std::string& warning : run.warnings)
    text += fmt::format("Note on the recording: {}\n", printable(warning));
  return text.empty() ? "" : "\n" + text;
}

std::string without_last_newline(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

std::string numbered(std::string_view label, const std::vector<const Origin*>& origins) {
  std::string text;
  for (std::size_t i = 0; i < origins.size(); ++i)
    text += fmt::format("\n{} {} of {}\n{}", label, i + 1, origins.size(), indented(lines_of(*origins[i])));
  return text;
}

std::string to_text(const Origin& origin) { return without_last_newline(lines_of(origin)); }
std::string to_text(const Diagnosis& diagnosis) { return without_last_newline(lines_of(diagnosis)); }
std::string to_text(const Run& run) { return without_last_newline(lines_of(run)); }

}  // namespace firstfault::present
