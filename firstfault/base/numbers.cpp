// std::to_chars throughout: it does not ask the locale, and knows the shortest digits that read back as the same float.
#include "firstfault/base/numbers.h"

#include <charconv>
#include <cmath>

namespace firstfault {
namespace {

constexpr double kWholeLimit = 1e15;

template <class... Args>
std::string chars(Args... args) {
  char buffer[64];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, args...);
  return std::string(buffer, result.ptr);
}

bool reads_as_whole(const std::string& text) {
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value == std::floor(value) && std::fabs(value) < kWholeLimit;
}

std::string shortest(double value) {
  const auto narrow = static_cast<float>(value);
  return static_cast<double>(narrow) == value ? chars(narrow) : chars(value);
}

}  // namespace

std::string show_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  if (value == std::floor(value) && std::fabs(value) < kWholeLimit) return chars(value, std::chars_format::fixed, 0);
  const std::string text = chars(value, std::chars_format::general, 6);
  return std::fabs(value) < kWholeLimit && reads_as_whole(text) ? shortest(value) : text;
}

std::string show_count(std::int64_t count) {
  std::string text = chars(count);
  const std::size_t first = count < 0 ? 1 : 0;
  for (std::size_t end = text.size(); end > first + 3;) {
    end -= 3;
    text.insert(end, ",");
  }
  return text;
}

std::string show_index(std::span<const std::int64_t> index) {
  std::string text = "[";
  for (std::size_t i = 0; i < index.size(); ++i) {
    if (i > 0) text += ", ";
    text += chars(index[i]);
  }
  return text + "]";
}

}  // namespace firstfault
