#include "cli/program_file.h"

#include <elf.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

namespace firstfault::cli {
namespace {

constexpr std::string_view kAddGlobalCallback = "_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE";
constexpr std::size_t kMostSymbolBytes = 512u << 20;

bool is_file(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && !S_ISDIR(status.st_mode);
}

std::string found_along_path(const std::string& name) {
  if (name.find('/') != std::string::npos) return is_file(name) ? name : "";
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (is_file(candidate) && access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return "";
}

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

std::string_view base_name(std::string_view path) { return path.substr(path.find_last_of('/') + 1); }

/// "python", "python3", "python3.12".
bool names_python(std::string_view path) {
  const std::string_view base = base_name(path);
  return base.substr(0, 6) == "python" && base.find_first_not_of("0123456789.", 6) == std::string_view::npos;
}

/// The first line asks for Python: "#!/usr/bin/env python3", "#!/opt/venv/bin/python -u".
bool python_by_first_line(std::ifstream& file) {
  std::string line(256, '\0');
  file.clear();
  file.seekg(0);
  file.read(line.data(), static_cast<std::streamsize>(line.size()));
  line.resize(static_cast<std::size_t>(file.gcount()));
  if (line.substr(0, 2) != "#!") return false;
  std::istringstream words(line.substr(2, line.find('\n') == std::string::npos ? line.npos : line.find('\n') - 2));
  for (std::string word; words >> word;)
    if (names_python(word)) return true;
  return false;
}

template <class T>
std::vector<T> read_many(std::ifstream& file, std::uint64_t offset, std::uint64_t count) {
  if (count > kMostSymbolBytes / sizeof(T)) return {};
  std::vector<T> out(count);
  file.clear();
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(reinterpret_cast<char*>(out.data()), static_cast<std::streamsize>(count * sizeof(T)));
  out.resize(static_cast<std::size_t>(file.gcount()) / sizeof(T));
  return out;
}

/// LibTorch is linked into the program itself.
bool defines_libtorch(std::ifstream& file, const Elf64_Ehdr& head) {
  const auto sections = read_many<Elf64_Shdr>(file, head.e_shoff, head.e_shnum);
  for (const Elf64_Shdr& section : sections) {
    if ((section.sh_type != SHT_SYMTAB && section.sh_type != SHT_DYNSYM) || section.sh_link >= sections.size())
      continue;
    const Elf64_Shdr& names_at = sections[section.sh_link];
    const auto names = read_many<char>(file, names_at.sh_offset, names_at.sh_size);
    const std::string_view all(names.data(), names.size());
    const std::size_t name = all.find(kAddGlobalCallback);
    if (name == all.npos) continue;
    for (const Elf64_Sym& symbol : read_many<Elf64_Sym>(file, section.sh_offset, section.sh_size / sizeof(Elf64_Sym)))
      if (symbol.st_name == name && symbol.st_shndx != SHN_UNDEF) return true;
  }
  return false;
}

std::string objection_to_elf(std::ifstream& file, const Elf64_Ehdr& head) {
  if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_machine != EM_X86_64)
    return "it is made for another kind of processor than x86-64";
  bool dynamic = false;
  for (const Elf64_Phdr& part : read_many<Elf64_Phdr>(file, head.e_phoff, head.e_phnum))
    dynamic = dynamic || part.p_type == PT_INTERP;
  if (!dynamic) return "it is linked statically, so nothing can be loaded into it";
  if (defines_libtorch(file, head)) return "LibTorch is linked into it statically; link it to libtorch.so instead";
  return "";
}

std::string objection_by_mode(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return "";
  if (status.st_mode & (S_ISUID | S_ISGID)) return "it is set-uid or set-gid, and the system loads nothing into such";
  if (getxattr(path.c_str(), "security.capability", nullptr, 0) > 0)
    return "it has file capabilities, and the system loads nothing into such";
  return "";
}

std::string objection(const std::string& path, std::ifstream& file) {
  if (std::string mode = objection_by_mode(path); !mode.empty()) return mode;
  const auto head = read_many<Elf64_Ehdr>(file, 0, 1);
  if (head.empty() || std::memcmp(head[0].e_ident, ELFMAG, SELFMAG) != 0) return "";
  return objection_to_elf(file, head[0]);
}

}  // namespace

ProgramFile inspect(const std::string& name) {
  ProgramFile out;
  const bool by_name = ends_with(name, ".py") || ends_with(name, ".pyw") || ends_with(name, ".pyc");
  struct stat status {};
  const bool folder = stat(name.c_str(), &status) == 0 && S_ISDIR(status.st_mode);  // python runs its __main__.py
  if (by_name || folder) return {name, true, false, ""};
  out.path = found_along_path(name);
  if (out.path.empty()) return out;
  out.interpreter = names_python(out.path);
  std::ifstream file(out.path, std::ios::binary);
  out.python = python_by_first_line(file);
  out.unwatchable = objection(out.path, file);
  return out;
}

}  // namespace firstfault::cli
