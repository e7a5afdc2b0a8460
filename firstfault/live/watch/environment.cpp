#include "firstfault/live/watch/environment.h"

#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <torch/version.h>
#include <unistd.h>

namespace firstfault::watch {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<std::string> command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

std::string packed_commit(const fs::path& git, const std::string& reference) {
  std::ifstream file(git / "packed-refs");
  for (std::string line; std::getline(file, line);) {
    constexpr std::size_t kHash = 40;
    if (line.size() > kHash + 1 && line.substr(kHash + 1) == reference) return line.substr(0, kHash);
  }
  return {};
}

// A worktree's .git is a file that says where the rest is; its branches are in the common folder.
std::string commit_in(fs::path git) {
  std::error_code ignored;
  if (fs::is_regular_file(git, ignored)) {
    const std::string line = first_line(git);
    constexpr std::string_view prefix = "gitdir: ";
    if (!line.starts_with(prefix)) return {};
    git = git.parent_path() / line.substr(prefix.size());
  }
  const std::string head = first_line(git / "HEAD");
  constexpr std::string_view prefix = "ref: ";
  if (!head.starts_with(prefix)) return head;
  const std::string reference = head.substr(prefix.size());
  const std::string common = first_line(git / "commondir");
  for (const fs::path& folder : {git, common.empty() ? git : git / common}) {
    if (std::string commit = first_line(folder / reference); !commit.empty()) return commit;
    if (std::string commit = packed_commit(folder, reference); !commit.empty()) return commit;
  }
  return {};
}

std::string git_commit(fs::path folder) {
  std::error_code ignored;
  for (; !folder.empty(); folder = folder.parent_path()) {
    if (fs::exists(folder / ".git", ignored)) return commit_in(folder / ".git");
    if (folder == folder.root_path()) break;
  }
  return {};
}

}  // namespace

Setup environment() {
  Setup setup;
  setup.command = command_line();
  std::error_code ignored;
  const fs::path folder = fs::current_path(ignored);
  setup.directory = folder.string();
  setup.git_commit = git_commit(folder);
  char host[256] = {};
  if (gethostname(host, sizeof(host) - 1) == 0) setup.host = host;
  char text[32] = {};
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  setup.started = text;
  setup.versions["torch"] = TORCH_VERSION;
  return setup;
}

}  // namespace firstfault::watch
