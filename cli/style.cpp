#include "cli/style.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <fmt/format.h>

#include "firstfault/base/numbers.h"

namespace firstfault::cli {
namespace {

std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string padded(const std::string& text, std::size_t width, Align align) {
  const std::string fill(width - std::min(width, width_of(text)), ' ');
  return align == Align::left ? text + fill : fill + text;
}

}  // namespace

std::string Style::wrapped(const char* code, std::string_view text) const {
  return colour_ ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
}

std::string table(const std::vector<std::vector<std::string>>& rows, const std::vector<Align>& align) {
  std::vector<std::size_t> widths(align.size(), 0);
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += "  " + padded(row[i], widths[i], align[i]);
    while (!line.empty() && line.back() == ' ') line.pop_back();
    text += line + "\n";
  }
  return text;
}

std::string counted(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", show_count(count), noun, count == 1 ? "" : "s");
}

std::string cell(double value) {
  if (std::isnan(value)) return "-";
  if (!std::isfinite(value) || (value == std::trunc(value) && std::abs(value) < 1e6)) return show_number(value);
  return fmt::format("{:.4g}", value);
}

}  // namespace firstfault::cli
