// The one exception this library throws on purpose: misuse, or a file that cannot be opened.
#pragma once

#include <stdexcept>
#include <string>

namespace firstfault {

/// Says where, what, got and the way out, in one or two sentences. Never thrown from inside a callback of the
/// training itself. `kind` tells a binding which of its language's own exceptions fits.
class Error : public std::runtime_error {
 public:
  enum class Kind { misuse, untracked, bad_value, no_file, no_permission, unreadable };
  explicit Error(const std::string& what, Kind kind = Kind::misuse) : std::runtime_error(what), kind_(kind) {}
  Kind kind() const noexcept { return kind_; }

 private:
  Kind kind_;
};

}  // namespace firstfault
