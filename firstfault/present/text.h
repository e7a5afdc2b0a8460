// A diagnosis as a paragraph a person wants to read first, then the path.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "firstfault/record/run.h"

namespace firstfault::present {

/// Control characters and terminal escapes in names come out escaped. `origin` should have been explained.
std::string to_text(const Origin& origin);
std::string to_text(const Diagnosis& diagnosis);
std::string to_text(const Run& run);

/// Cause in words, where and why; then the evidence in order of time, advice, standing and confidence.
std::string to_text(const Hypothesis& hypothesis);
/// The verdict on a watched run first; then each hypothesis in the order given: likeliest first.
std::string to_text(std::span<const Hypothesis> hypotheses, const Run& run);
/// One line: "step 12: gradient of 'fc.weight' went from healthy to exploding (4200, usually 0.31), confidence 0.93".
std::string to_text(const Transition& transition, const Site& site);
/// The same, with the site looked up; one that the run lacks is called by its number.
std::string to_text(const Transition& transition, const Run& run);
/// "step 30: rolled back, the loss is NaN; back to step 25, 5 steps lost".
std::string to_text(const GuardAction& action);
/// What a guard did, a sentence each, of many the first and the last; its clips counted in one. Empty for nothing.
std::vector<std::string> actions_text(const Run& run);
/// "gradient of 'fc.weight'", "aten::tanh in module 'model.act1'", "loss", "input 0".
std::string to_text(const Site& site);

}  // namespace firstfault::present
