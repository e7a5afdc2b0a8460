// Puts the text form into two elements.
#include "firstfault/present/html.h"

#include <fmt/format.h>

#include "firstfault/present/text.h"

namespace firstfault::present {
namespace {

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string page(const std::string& text) {
  const std::size_t end = text.find('\n');
  const std::string sentence = escaped(text.substr(0, end));
  std::string html = fmt::format("<div class=\"firstfault\"><p><strong>{}</strong></p>", sentence);
  if (end != std::string::npos) {
    const std::size_t facts = text.find_first_not_of('\n', end);
    html += fmt::format("<pre style=\"white-space: pre-wrap\">{}</pre>", escaped(text.substr(facts)));
  }
  return html + "</div>";
}

}  // namespace

std::string to_html(const Origin& origin) { return page(to_text(origin)); }
std::string to_html(const Diagnosis& diagnosis) { return page(to_text(diagnosis)); }
std::string to_html(const Run& run) { return page(to_text(run)); }
std::string to_html(const Hypothesis& hypothesis) { return page(to_text(hypothesis)); }
std::string to_html(std::span<const Hypothesis> hypotheses, const Run& run) { return page(to_text(hypotheses, run)); }

}  // namespace firstfault::present
