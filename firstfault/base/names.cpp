// Escapes what a terminal would act on. Decodes UTF-8 by the table of well-formed sequences (Unicode 15, table 3-7).
#include "firstfault/base/names.h"

#include <cstddef>
#include <cstdint>

namespace firstfault {
namespace {

struct Decoded {
  std::uint32_t code = 0;
  std::size_t length = 0;  ///< 0: not well-formed
};

Decoded decode(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xC2 || lead > 0xF4) return {};
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (text.size() < length) return {};
  std::uint32_t code = lead & (0xFFu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    code = (code << 6) | (byte(i) & 0x3Fu);
  }
  constexpr std::uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < smallest[length] || surrogate || code > 0x10FFFF) return {};
  return {code, length};
}

bool acts_on_a_terminal(std::uint32_t code) {
  if (code < 0x20 || (code >= 0x7F && code < 0xA0)) return true;
  if (code == 0x2028 || code == 0x2029 || code == 0x200E || code == 0x200F || code == 0x061C) return true;
  return (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069) || code == 0xFEFF;
}

void append_hex(std::string& out, std::uint32_t code, int digits) {
  constexpr char hex[] = "0123456789abcdef";
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += hex[(code >> shift) & 0xF];
}

void append_escaped(std::string& out, std::uint32_t code) {
  if (code == '\n') {
    out += "\\n";
  } else if (code == '\r') {
    out += "\\r";
  } else if (code == '\t') {
    out += "\\t";
  } else if (code < 0x100) {
    out += "\\x";
    append_hex(out, code, 2);
  } else {
    out += "\\u";
    append_hex(out, code, 4);
  }
}

}  // namespace

std::string printable(std::string_view name) {
  std::string out;
  out.reserve(name.size());
  while (!name.empty()) {
    const Decoded next = decode(name);
    if (next.length == 0) {
      append_escaped(out, static_cast<std::uint8_t>(name.front()));
      name.remove_prefix(1);
      continue;
    }
    if (acts_on_a_terminal(next.code)) {
      append_escaped(out, next.code);
    } else {
      out += name.substr(0, next.length);
    }
    name.remove_prefix(next.length);
  }
  return out;
}

}  // namespace firstfault
