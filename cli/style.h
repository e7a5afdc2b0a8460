// Text for a terminal: colour where it is allowed, columns that line up.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace firstfault::cli {

/// Wraps text in terminal escapes, or leaves it as it is. The text must be printable() already.
class Style {
 public:
  explicit Style(bool colour) : colour_(colour) {}
  std::string bold(std::string_view text) const { return wrapped("1", text); }
  std::string dim(std::string_view text) const { return wrapped("2", text); }
  std::string red(std::string_view text) const { return wrapped("1;31", text); }
  std::string green(std::string_view text) const { return wrapped("32", text); }
  std::string yellow(std::string_view text) const { return wrapped("33", text); }

 private:
  std::string wrapped(const char* code, std::string_view text) const;
  bool colour_;
};

enum class Align { left, right };

/// Lines of two spaces and the cells, each column as wide as its widest cell; the first row is the head. `align` has
/// one entry per column. Width is counted in code points.
std::string table(const std::vector<std::vector<std::string>>& rows, const std::vector<Align>& align);

/// "1 step", "1,200 steps".
std::string counted(std::int64_t count, std::string_view noun);

/// show_number() with four significant digits for what is not whole; "-" for what was not measured.
std::string cell(double value);

}  // namespace firstfault::cli
