// A piece of HTML for notebooks: the sentence first, the facts below it.
#pragma once

#include <span>
#include <string>

#include "firstfault/record/run.h"

namespace firstfault::present {

/// The words of to_text(), escaped: names in it are the traced program's, and no markup of theirs comes through. No
/// script, no style sheet; `origin` should have been explained.
std::string to_html(const Origin& origin);
std::string to_html(const Diagnosis& diagnosis);
std::string to_html(const Run& run);
std::string to_html(const Hypothesis& hypothesis);
std::string to_html(std::span<const Hypothesis> hypotheses, const Run& run);

}  // namespace firstfault::present
