// One addr2line run per library, with inlines expanded; dladdr where it gives nothing.
#include "firstfault/live/intercept/symbolize.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <link.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

namespace firstfault::intercept {
namespace {

struct Address {
  std::string library;
  std::uintptr_t offset = 0;  // in the library's own addresses
  std::string symbol;
};

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// Machinery between the program and the op: never what a user wants to read.
bool is_foreign_library(const std::string& path) {
  for (const char* part : {"libtorch", "libc10", "libfirstfault", "libc.so", "libstdc++", "ld-linux", "libgomp"}) {
    if (contains(path, part)) return true;
  }
  return false;
}

bool is_foreign_source(const std::string& file) {
  for (const char* part : {"/torch/include/", "/ATen/", "/c10/", "/torch/csrc/", "/include/c++/", "firstfault/live/"}) {
    if (contains(file, part)) return true;
  }
  return false;
}

std::string demangled(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(symbol, nullptr, nullptr, &status),
                                                         &std::free);
  return status == 0 && text ? text.get() : symbol;
}

Address locate(void* address) {
  Address found;
  Dl_info info{};
  link_map* map = nullptr;
  if (!dladdr1(address, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP)) return found;
  found.library = info.dli_fname ? info.dli_fname : "";
  // A return address belongs to the call before it.
  found.offset = reinterpret_cast<std::uintptr_t>(address) - 1 - (map ? map->l_addr : 0);
  if (info.dli_sname) found.symbol = demangled(info.dli_sname);
  return found;
}

std::string shell_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// nullopt: there is no such program.
std::optional<std::string> output_of(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return std::nullopt;
  std::string text;
  std::array<char, 4096> buffer;
  while (const auto n = fread(buffer.data(), 1, buffer.size(), pipe)) text.append(buffer.data(), n);
  constexpr int kNotFound = 127;
  const int status = pclose(pipe);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotFound) return std::nullopt;
  return text;
}

using FramesOf = std::map<std::uintptr_t, std::vector<SourceFrame>>;

// With -a each address is printed before its frames, innermost inline first: function, then file:line. nullopt: no
// addr2line here.
std::optional<FramesOf> run_addr2line(const std::string& library, const std::vector<std::uintptr_t>& offsets) {
  std::ostringstream command;
  command << "addr2line -a -i -f -C -e " << shell_quoted(library) << std::hex;
  for (const auto offset : offsets) command << " 0x" << offset;
  command << " 2>/dev/null";
  const auto output = output_of(command.str());
  if (!output) return std::nullopt;
  FramesOf frames;
  std::istringstream lines(*output);
  std::uintptr_t current = 0;
  for (std::string function; std::getline(lines, function);) {
    if (function.rfind("0x", 0) == 0) {
      current = std::strtoull(function.c_str(), nullptr, 16);
      continue;
    }
    std::string place;
    if (!std::getline(lines, place)) break;
    const auto colon = place.rfind(':');
    const auto file = std::filesystem::path(place.substr(0, colon)).lexically_normal().string();
    SourceFrame frame{file, std::atoi(place.c_str() + colon + 1), function};
    if (frame.file == "??" || frame.file.empty()) continue;
    frames[current].push_back(std::move(frame));
  }
  return frames;
}

std::string without_line(const Address& address, bool has_addr2line) {
  const std::string where =
      address.symbol.empty() ? std::filesystem::path(address.library).filename().string() : address.symbol;
  return where + (has_addr2line ? " (no line: compiled without -g)"
                                : " (no line: addr2line, of the package binutils, was not found)");
}

}  // namespace

std::vector<SourceFrame> symbolize(const std::vector<void*>& addresses) {
  std::vector<Address> located;
  std::map<std::string, std::vector<std::uintptr_t>> by_library;
  for (void* address : addresses) {
    located.push_back(locate(address));
    const Address& one = located.back();
    if (!one.library.empty() && !is_foreign_library(one.library)) by_library[one.library].push_back(one.offset);
  }
  std::map<std::string, std::optional<FramesOf>> resolved;
  for (const auto& [library, offsets] : by_library) resolved[library] = run_addr2line(library, offsets);

  std::vector<SourceFrame> stack;
  for (const Address& one : located) {
    if (!by_library.count(one.library)) continue;
    const auto& frames = resolved[one.library];
    // _start, the outermost, has no name where a program exports none.
    const bool outermost = &one == &located.back() && frames && !frames->empty();
    const bool entry = one.symbol == "_start" || (one.symbol.empty() && outermost);
    if (frames && frames->count(one.offset)) {
      for (const SourceFrame& frame : frames->at(one.offset)) {
        if (!is_foreign_source(frame.file)) stack.push_back(frame);
      }
    } else if (!entry) {
      stack.push_back({"", 0, without_line(one, frames.has_value())});
    }
  }
  return stack;
}

}  // namespace firstfault::intercept
