// Causes in words.
#pragma once

#include <string>
#include <string_view>

namespace firstfault::present {

/// "lr_too_high" -> "learning rate too high". A cause that is not in the list: its own name with spaces, escaped.
std::string words_for_cause(std::string_view cause);

}  // namespace firstfault::present
