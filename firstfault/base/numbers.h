// Numbers as a person reads them: 0, not 0.0; 1e-38, not 0.000000; 5,120 elements; [2, 17].
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace firstfault {

/// Whole numbers below 1e15 in full ("65504"), others with six significant digits ("88.7228", "1e-38") and with as many
/// as it takes where six would show a whole number that it is not ("1.0000001"). "NaN", "+Inf", "-Inf"; the sign of -0
/// is kept, since 1/-0 is -Inf. Independent of the locale.
std::string show_number(double value);

/// With thousands separated: "5,120".
std::string show_count(std::int64_t count);

/// "[2, 17]"; "[]" for a 0-dim tensor.
std::string show_index(std::span<const std::int64_t> index);

}  // namespace firstfault
